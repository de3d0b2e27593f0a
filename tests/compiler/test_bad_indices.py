"""An index out of range is reported and harms nothing: no write, no read behind a tensor, no false alarm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchvk_compile.errors import DeviceAssertError

_Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

# Of a table of 4 rows and 2 columns; the last place is out of range.
_WRITES: dict[str, _Write] = {
    "index_put_": lambda t, rows, values: t.index_put_((rows,), values),
    "accumulate": lambda t, rows, values: t.index_put_((rows,), values, accumulate=True),
    "index_add_": lambda t, rows, values: t.index_add_(0, rows, values),
    "index_copy_": lambda t, rows, values: t.index_copy_(0, rows, values),
    "index_fill_": lambda t, rows, values: t.index_fill_(0, rows, 1.0),
    "scatter_": lambda t, rows, values: t.scatter_(0, rows[:, None].expand(3, 2), values),
    "scatter_reduce_": lambda t, rows, values: t.scatter_reduce_(
        0, rows[:, None].expand(3, 2), values, "amax"
    ),
    "put_": lambda t, rows, values: t.put_(rows * 2, values[:, 0]),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", _WRITES)
def test_a_write_out_of_range_does_not_happen(name: str, compiled: bool, vk: torch.device) -> None:
    write = torch.compile(_WRITES[name], backend="torchvk") if compiled else _WRITES[name]
    rows, values = torch.tensor([1, 3, 4]), torch.ones(3, 2)
    table = torch.zeros(4, 2, device=vk)
    with pytest.raises(DeviceAssertError, match="index out of range: got"):
        write(table, rows.to(vk), values.to(vk))
        torch.vk.synchronize()  # type: ignore[attr-defined]
    expected = torch.zeros(4, 2)
    expected[rows[:2]] = torch.tensor([1.0, 0.0 if name == "put_" else 1.0])
    torch.testing.assert_close(table.cpu(), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_fill"])
def test_negative_indices_count_where_torch_lets_them(
    name: str, dtype: torch.dtype, compiled: bool, vk: torch.device
) -> None:
    def write(table: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return getattr(table, name)(0, rows, 1 if name == "index_fill" else values)

    function = torch.compile(write, backend="torchvk") if compiled else write
    table, rows = torch.zeros(4, 2, dtype=dtype), torch.tensor([1, -1])
    given = table.to(vk), rows.to(vk), torch.ones(2, 2, dtype=dtype, device=vk)
    if name == "index_fill":
        torch.testing.assert_close(function(*given).cpu(), table.index_fill(0, rows, 1))
        return
    with pytest.raises(DeviceAssertError, match="index out of range: got -1"):
        function(*given)
        torch.vk.synchronize()  # type: ignore[attr-defined]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=str)
def test_masked_scatter_with_too_few_elements(
    dtype: torch.dtype, compiled: bool, vk: torch.device
) -> None:
    function = (
        torch.compile(torch.masked_scatter, backend="torchvk") if compiled else torch.masked_scatter
    )
    mask = torch.tensor([True, True, False, True, False, True])
    x, source = torch.zeros(2, 6, dtype=dtype), torch.arange(1, 13).to(dtype)
    for enough in (source, source[:8]):
        result = function(x.to(vk), mask.to(vk), enough.to(vk))
        torch.testing.assert_close(result.cpu(), x.masked_scatter(mask, enough))
    for few, message in ((source[:7], "got 7, the dimension has size 7"), (source[:0], "has none")):
        with pytest.raises(DeviceAssertError, match=message):
            function(x.to(vk), mask.to(vk), few.to(vk))
            torch.vk.synchronize()  # type: ignore[attr-defined]
    nothing = torch.zeros(6, dtype=torch.bool, device=vk)
    assert torch.equal(function(x.to(vk), nothing, source[:0].to(vk)).cpu(), x)


@pytest.mark.parametrize("count", [5, 8, 300])
def test_indices_from_a_scan_are_no_false_alarm(count: int, vk: torch.device) -> None:
    """A workgroup's invocations behind the last element go on counting."""
    table, mask = torch.randn(count), torch.ones(count, dtype=torch.bool)

    def function(table: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return table[mask.to(torch.int64).cumsum(0) - 1]

    result = torch.compile(function, backend="torchvk")(table.to(vk), mask.to(vk))
    assert torch.equal(result.cpu(), table)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_indices_of_the_cpu_select_from_the_device(compiled: bool, vk: torch.device) -> None:
    def function(x: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x.index_put((rows,), x[rows] * 2)
        return x[mask]

    call = torch.compile(function, backend="torchvk") if compiled else function
    x, rows, mask = torch.randn(3, 4), torch.tensor([2, 0]), torch.tensor([True, False, True])
    torch.testing.assert_close(call(x.to(vk), rows, mask).cpu(), function(x, rows, mask))
    with pytest.raises(RuntimeError, match="same device"):
        x[rows.to(vk)]


# Of a table of 20 rows and 4 columns, from a graph that makes its indices itself: rows `first` to `first + 7`.
_KNOWN: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "gather": lambda t, first: t.gather(0, _rows(t, first)[:, None].expand(8, 4)),
    "gather of a column": lambda t, first: t[:, 0].contiguous().gather(0, _rows(t, first)),
    "index_select": lambda t, first: t.index_select(0, _rows(t, first)),
    "sum of a gather": lambda t, first: t.gather(0, _rows(t, first)[:, None].expand(8, 4)).sum(),
    "index_add": lambda t, first: t.index_add(0, _rows(t, first), t[:8]),
    "index_copy": lambda t, first: t.index_copy(0, _rows(t, first), t[:8]),
    "scatter of a column": lambda t, first: t[:, 0].contiguous().scatter(0, _rows(t, first), 1.0),
}


def _rows(t: torch.Tensor, first: int) -> torch.Tensor:
    return torch.arange(8, device=t.device) + first


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", _KNOWN)
def test_indices_that_the_graph_makes_itself(name: str, dynamic: bool, vk: torch.device) -> None:
    function = torch.compile(_KNOWN[name], backend="torchvk", dynamic=dynamic)
    table = torch.arange(80.0).reshape(20, 4)
    for first in (3, 12):
        result = function(table.to(vk), first)
        torch.testing.assert_close(result.cpu(), _KNOWN[name](table, first))
    for first in (13, -30, 10**8):
        with pytest.raises(DeviceAssertError, match="index out of range: got"):
            function(table.to(vk), first)
            torch.vk.synchronize()  # type: ignore[attr-defined]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_negative_numbers_of_slices_are_out_of_range(compiled: bool, vk: torch.device) -> None:
    def function(t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.index_select(t, 1, i)

    run = torch.compile(function, backend="torchvk") if compiled else function
    table = torch.arange(20.0).reshape(4, 5)
    for index in (torch.tensor([4, 0, 0]), torch.tensor(2), torch.tensor([1], dtype=torch.int32)):
        torch.testing.assert_close(run(table.to(vk), index.to(vk)).cpu(), function(table, index))
    with pytest.raises(DeviceAssertError, match="got -1"):
        run(table.to(vk), torch.tensor([0, -1]).to(vk))
        torch.vk.synchronize()  # type: ignore[attr-defined]
