"""Matrix products on the vk device: every dtype, shape, stride and scaling that CPU eager knows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchvk_compile.errors import UnsupportedOperatorError

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

pytestmark = pytest.mark.usefixtures("seeded")


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random elements; integers large enough that sums of products wrap."""
    if dtype.is_floating_point:
        return torch.randn(*shape).to(dtype)
    return torch.randint(0 if dtype is torch.uint8 else -100, 100, shape).to(dtype)


def check(
    fn: Callable[..., Any],
    *inputs: torch.Tensor,
    device: torch.device,
    dynamic: bool | None = False,
    compiled: Callable[..., Any] | None = None,
) -> None:
    """Compare `fn`, compiled for the device, with the CPU: floats in float64, integers exactly.

    Bounds are relative to the largest element: sums of such sizes cancel in the others. NaNs must
    match.
    """
    compiled = compiled or torch.compile(fn, backend="torchvk", dynamic=dynamic)
    actual = compiled(*(on(device, x) for x in inputs))
    exact = fn(*(x.double() if x.dtype.is_floating_point else x for x in inputs))
    plain = fn(*inputs)
    if isinstance(actual, torch.Tensor):
        actual, exact, plain = [actual], [exact], [plain]
    for result, reference, like in zip(actual, exact, plain, strict=True):
        assert (
            result.dtype == like.dtype
            and result.shape == like.shape
            and result.stride() == like.stride()
        )
        if like.dtype.is_floating_point:
            reference = reference.double()
            magnitude = (
                reference.abs().nan_to_num(0, 0, 0).max().item() if reference.numel() else 0.0
            )
            torch.testing.assert_close(
                result.cpu().double(),
                reference,
                rtol=4 * torch.finfo(like.dtype).eps,
                atol=32 * torch.finfo(like.dtype).eps * max(magnitude, 1.0),
                equal_nan=True,
            )
        else:
            assert torch.equal(result.cpu(), like)


def on(device: torch.device, x: torch.Tensor) -> torch.Tensor:
    """The tensor on the device, with its strides and storage offset."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return storage.clone().to(device).as_strided(x.shape, x.stride(), x.storage_offset())


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_every_dtype_of_the_cpu(vk: torch.device, dtype: torch.dtype) -> None:
    def products(a: Any, b: Any, c: Any, d: Any, bias: Any) -> Any:
        return (
            a @ b,
            torch.addmm(bias, a, b, beta=2, alpha=3),
            c @ d.mT,
            torch.baddbmm(bias[:19], c, d.mT, beta=-1),
        )

    sizes = ((33, 45), (45, 38), (3, 7, 20), (3, 19, 20), (38,))
    check(products, *(values(*size, dtype=dtype) for size in sizes), device=vk)


def test_sizes_around_tiles_and_vectors(vk: torch.device) -> None:
    sizes = [(m, n, k) for m in (1, 2, 16, 17, 70) for n in (1, 3, 64, 65) for k in (1, 7, 8, 33)]

    def products(*matrices: Any) -> Any:
        return [a @ b for a, b in zip(matrices[::2], matrices[1::2], strict=True)]

    matrices = [x for m, n, k in sizes for x in (values(m, k), values(k, n))]
    check(products, *matrices, device=vk)


def test_batches_of_sizes_around_tiles(vk: torch.device) -> None:
    sizes = [(b, m, n, k) for b in (1, 5) for m in (1, 9) for n in (1, 34) for k in (4, 17)]

    def products(*matrices: Any) -> Any:
        return [a @ b for a, b in zip(matrices[::2], matrices[1::2], strict=True)]

    matrices = [x for b, m, n, k in sizes for x in (values(b, m, k), values(b, k, n))]
    check(products, *matrices, device=vk)


@pytest.mark.parametrize("size", [(0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0)], ids=str)
def test_empty_dimensions(vk: torch.device, size: tuple[int, int, int]) -> None:
    m, n, k = size

    def products(a: Any, b: Any, bias: Any) -> Any:
        return a @ b, torch.addmm(bias, a, b, beta=3), a.expand(2, m, k) @ b.expand(2, k, n)

    check(products, values(m, k), values(k, n), values(n), device=vk)


def test_empty_batch(vk: torch.device) -> None:
    check(torch.bmm, values(0, 4, 5), values(0, 5, 6), device=vk)


def test_vectors(vk: torch.device) -> None:
    def products(a: Any, x: Any, y: Any) -> Any:
        return a @ x, y @ a, x @ x, torch.addmv(y, a, x, beta=0.5), torch.outer(y, x)

    check(products, values(70, 130), values(130), values(70), device=vk)


def test_any_strides(vk: torch.device) -> None:
    def products(a: Any, b: Any) -> Any:
        return (
            a @ b,
            a.t() @ b.t(),
            a[1:, 2:] @ b[2:, 3:],
            a[::2, ::3] @ b[::3, ::2],
            a[:, :1].expand(21, 30) @ b,
            a.flip(0) @ b,
            a.unfold(0, 4, 2)[:, :, 1] @ b[:, :5],
        )

    check(products, values(21, 30), values(30, 21), device=vk)


def test_inputs_that_are_not_aligned(vk: torch.device) -> None:
    compiled = torch.compile(lambda a, b: a @ b, backend="torchvk", dynamic=False)
    for offset in (0, 1, 3):
        a, b = values(20 * 24 + 3)[offset:], values(24 * 32 + 3)[offset:]
        matrices = (a[: 20 * 24].view(20, 24), b[: 24 * 32].view(24, 32))
        check(lambda a, b: a @ b, *matrices, device=vk, compiled=compiled)


def test_beta_zero_does_not_read_the_bias(vk: torch.device) -> None:
    bias = torch.full((6,), float("nan"))

    def products(bias: Any, a: Any, b: Any) -> Any:
        return (
            torch.addmm(bias, a, b, beta=0),
            torch.baddbmm(bias, a[None], b[None], beta=0, alpha=0.5),
            torch.addmm(bias, a, b),
        )

    check(products, bias, values(4, 5), values(5, 6), device=vk)


def test_sums_of_batches(vk: torch.device) -> None:
    def products(bias: Any, a: Any, b: Any) -> Any:
        return torch.addbmm(bias, a, b, beta=0.5, alpha=2), torch.einsum("bij,bjk->ik", a, b)

    check(products, values(9), values(4, 7, 5), values(4, 5, 9), device=vk)


def test_integer_product_with_wide_output(vk: torch.device) -> None:
    a, b = values(32, 48, dtype=torch.int8), values(48, 16, dtype=torch.int8)
    check(torch._int_mm, a, b, device=vk)


def test_bias_broadcasts(vk: torch.device) -> None:
    def products(row: Any, column: Any, one: Any, full: Any, a: Any, b: Any) -> Any:
        return [torch.addmm(bias, a, b, beta=0.25, alpha=-2) for bias in (row, column, one, full)]

    check(
        products,
        values(9),
        values(7, 1),
        values(1),
        values(7, 9),
        values(7, 5),
        values(5, 9),
        device=vk,
    )


def test_infinities_and_nans_stay_in_their_rows(vk: torch.device) -> None:
    a, b = values(40, 20), values(20, 40)
    a[3, 4], a[5, 6], b[7, 8] = float("inf"), float("nan"), float("-inf")
    check(torch.mm, a, b, device=vk)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_summed_in_float32(vk: torch.device, dtype: torch.dtype) -> None:
    # 4096 ones and a half of the last bit each: a sum in half precision would stop growing.
    a = torch.ones(2, 6000, dtype=dtype)
    check(torch.mm, a, a.t(), device=vk)


def test_dynamic_sizes_need_one_compilation(vk: torch.device) -> None:
    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return torch.relu(torch.addmm(bias, x, weight.t())) @ weight

    compiled = torch.compile(layer, backend="torchvk", dynamic=True)
    for m, n, k in ((9, 17, 13), (33, 64, 32), (70, 5, 129)):
        stance = "default" if m == 9 else "fail_on_recompile"
        with torch.compiler.set_stance(stance):
            check(layer, values(m, k), values(n, k), values(n), device=vk, compiled=compiled)


def test_dynamic_batches(vk: torch.device) -> None:
    def attention(q: Any, k: Any) -> Any:
        return q @ k.mT * 0.5

    compiled = torch.compile(attention, backend="torchvk", dynamic=True)
    for batch, rows, columns in ((2, 9, 11), (5, 16, 32)):
        inputs = (values(batch, rows, 16), values(batch, columns, 16))
        check(attention, *inputs, device=vk, compiled=compiled)


def test_other_devices_keep_their_lowerings(vk: torch.device) -> None:
    a, b = values(8, 9), values(9, 10)
    torch.compile(torch.mm, backend="torchvk")(a.to(vk), b.to(vk))
    torch.testing.assert_close(torch.compile(torch.mm, backend="inductor")(a, b), a @ b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_bilinear_layers(vk: torch.device, dtype: torch.dtype) -> None:
    check(
        torch.nn.functional.bilinear,
        *(values(*size, dtype=dtype) for size in ((6, 5), (6, 7), (4, 5, 7), (4,))),
        device=vk,
    )


def test_beta_zero_ignores_nan_also_with_one_column(
    assert_close_like_cpu: Callable[..., None],
) -> None:
    bias = torch.full((3, 4), float("nan"))
    assert_close_like_cpu(
        lambda b, x, y: torch.addmm(b, x, y, beta=0), bias, torch.randn(3, 1), torch.randn(1, 4)
    )


PRODUCTS = {
    "mm": [(3, 3)] * 2,
    "bmm": [(2, 3, 3)] * 2,
    "addmm": [(3, 3)] * 3,
    "baddbmm": [(2, 3, 3)] * 3,
    "addbmm": [(3, 3), (2, 3, 3), (2, 3, 3)],
    "bilinear": [(3, 3)] * 2 + [(3, 3, 3)],
    "mv": [(3, 3), (3,)],
    "addmv": [(3,), (3, 3), (3,)],
    "dot": [(3,)] * 2,
    "vdot": [(3,)] * 2,
    "linalg.cross": [(2, 3)] * 2,
}
OPERATORS = {"bilinear": "_trilinear", "linalg.cross": "linalg_cross"}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that_torch_does_not_have(vk: torch.device, name: str, compiled: bool) -> None:
    product = operator.attrgetter(name)(torch)
    function = torch.compile(product, backend="torchvk") if compiled else product
    ones = [torch.ones(shape, device=vk) for shape in PRODUCTS[name]]
    with pytest.raises(UnsupportedOperatorError, match=f"{OPERATORS.get(name, name)}.* bool"):
        function(*(operand.bool() for operand in ones))
    with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
        function(ones[0].double(), *ones[1:])
    with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
        function(*ones[:-1], ones[-1].half())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_addcmul_of_booleans_is_refused_unless_the_result_is_none(
    vk: torch.device, compiled: bool
) -> None:
    function = torch.compile(torch.addcmul, backend="torchvk") if compiled else torch.addcmul
    flags, numbers = torch.tensor([True, False]), torch.tensor([2, 3])
    with pytest.raises(UnsupportedOperatorError, match=r"addcmul.* bool"):
        function(*[flags.to(vk)] * 3)
    for operands in ((numbers, flags, flags), (flags, numbers, flags), (flags, flags, numbers)):
        expected = torch.addcmul(*operands)
        torch.testing.assert_close(function(*(o.to(vk) for o in operands)).cpu(), expected)
