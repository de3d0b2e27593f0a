"""scaled_dot_product_attention: one kernel per pass, the same numbers as the decomposition in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchvk_compile

Tensors = list[torch.Tensor]
_TOLERANCES = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 2e-3},
    torch.bfloat16: {"rtol": 2e-2, "atol": 1.6e-2},
}


def heads(
    query: tuple[int, ...],
    key: tuple[int, ...],
    *,
    value: int | None = None,
    dtype: Any = torch.float32,
) -> Tensors:
    """Query, key and value; `value` is the width of the value's heads."""
    generator = torch.Generator().manual_seed(sum(query) * 31 + sum(key))
    shapes = (query, key, (*key[:-1], value or key[-1]))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def passes(function: Callable[..., torch.Tensor], tensors: Tensors, **settings: Any) -> Tensors:
    """The output and the gradients of query, key and value, for a fixed gradient of the output."""
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    output = function(*tensors, **settings)
    gradient = torch.cos(torch.arange(output.numel())).reshape(output.shape)
    return [output, *torch.autograd.grad(output, tensors, gradient.to(output))]


def on(place: Any, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(place) if isinstance(value, torch.Tensor) else value
        for name, value in settings.items()
    }


def check(
    device: torch.device,
    tensors: Tensors,
    function: Any = F.scaled_dot_product_attention,
    **settings: Any,
) -> None:
    """Forward and backward on the device against float64 on the CPU, without the scores in memory."""
    dtype = tensors[0].dtype
    exact = {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.dtype != torch.bool
        else value
        for name, value in settings.items()
    }
    with sdpa_kernel(SDPBackend.MATH):
        expected = passes(F.scaled_dot_product_attention, [t.double() for t in tensors], **exact)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        actual = passes(function, [t.to(device) for t in tensors], **on(device, settings))
    for label, own, other in zip(
        ("output", "query", "key", "value"), actual, expected, strict=True
    ):
        torch.testing.assert_close(
            own.cpu(),
            other.to(dtype),
            **_TOLERANCES[dtype],
            equal_nan=True,
            msg=lambda text, label=label: f"{label}: {text}",
        )


@pytest.mark.parametrize("dtype", list(_TOLERANCES), ids=str)
def test_dtypes(vk: torch.device, dtype: torch.dtype) -> None:
    check(vk, heads((2, 3, 37, 24), (2, 3, 41, 24), value=20, dtype=dtype))


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ((1, 1, 1, 3), (1, 1, 1, 3)),
        ((1, 2, 1, 16), (1, 2, 70, 16)),
        ((1, 2, 65, 16), (1, 2, 1, 16)),
    ],
)
def test_lengths(vk: torch.device, query: tuple[int, ...], key: tuple[int, ...]) -> None:
    check(vk, heads(query, key))


def test_causal(vk: torch.device) -> None:
    check(vk, heads((2, 2, 45, 16), (2, 2, 45, 16)), is_causal=True)
    # Aligned at the first query and key, however many there are of each.
    check(vk, heads((1, 2, 20, 16), (1, 2, 50, 16)), is_causal=True)
    check(vk, heads((1, 2, 50, 16), (1, 2, 20, 16)), is_causal=True)


def test_boolean_mask(vk: torch.device) -> None:
    tensors = heads((2, 2, 19, 16), (2, 2, 35, 16))
    mask = torch.rand(2, 1, 19, 35, generator=torch.Generator().manual_seed(0)) > 0.4
    check(vk, tensors, attn_mask=mask)
    # Rows without any key are zero, and so are their gradients.
    mask = mask[:1, 0].clone()
    mask[:, 3:7] = False
    check(vk, tensors, attn_mask=mask)


@pytest.mark.parametrize("shape", [(19, 35), (2, 1, 35), (2, 1, 19, 1)], ids=str)
def test_additive_mask(vk: torch.device, shape: tuple[int, ...]) -> None:
    mask = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    mask[..., 0, 0] = -torch.inf
    check(vk, heads((2, 2, 19, 16), (2, 2, 35, 16)), attn_mask=mask)


def test_gradient_of_a_mask_decomposes(vk: torch.device) -> None:
    query, key, value = (tensor.to(vk) for tensor in heads((1, 2, 5, 4), (1, 2, 7, 4)))
    mask = torch.zeros(2, 5, 7, device=vk, requires_grad=True)
    F.scaled_dot_product_attention(query, key, value, mask).sum().backward()
    assert mask.grad is not None
    with (
        sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        pytest.raises(RuntimeError, match="mask needs a gradient"),
    ):
        F.scaled_dot_product_attention(query, key, value, mask)


def test_grouped_queries(vk: torch.device) -> None:
    check(vk, heads((2, 6, 21, 16), (2, 2, 35, 16)), enable_gqa=True, is_causal=True)


def test_heads_and_batches_broadcast(vk: torch.device) -> None:
    tensors = heads((3, 4, 5, 8), (1, 1, 7, 8))
    check(vk, tensors)


@pytest.mark.parametrize("leading", [(), (3,), (2, 3, 2)], ids=str)
def test_ranks(vk: torch.device, leading: tuple[int, ...]) -> None:
    check(vk, heads((*leading, 9, 8), (*leading, 11, 8)))


def test_scale(vk: torch.device) -> None:
    check(vk, heads((1, 1, 9, 8), (1, 1, 9, 8)), scale=-1.5)


def test_large_scores_do_not_overflow(vk: torch.device) -> None:
    query, key, value = heads((1, 1, 9, 8), (1, 1, 40, 8))
    arguments = (query * 10, key * 10, value)
    expected = F.scaled_dot_product_attention(*(tensor.double() for tensor in arguments))
    actual = F.scaled_dot_product_attention(*(tensor.to(vk) for tensor in arguments))
    torch.testing.assert_close(actual.cpu(), expected.float(), rtol=1e-3, atol=1e-4)


def test_views_are_read_in_place(vk: torch.device) -> None:
    """(B, S, H, D) views, as a projection of tokens gives, cost no copy, and the output is such a view."""
    packed = torch.randn(2, 21, 3, 2, 16, device=vk)
    query, key, value = (packed[:, :, i].transpose(1, 2) for i in range(3))
    F.scaled_dot_product_attention(query, key, value)
    with torchvk_compile.audit() as audit:
        output = F.scaled_dot_product_attention(query, key, value)
    assert audit.dispatches == 1
    assert output.transpose(1, 2).is_contiguous()
    expected = F.scaled_dot_product_attention(query.cpu(), key.cpu(), value.cpu())
    torch.testing.assert_close(output.cpu(), expected)


def test_misaligned_and_strided_heads(vk: torch.device) -> None:
    storage = torch.randn(2 * 9 * 16 + 1)
    query = storage[1:].view(1, 2, 9, 16)
    key = storage[:-1].view(1, 2, 16, 9).transpose(-1, -2)
    arguments = (query, key, query)
    expected = F.scaled_dot_product_attention(*arguments)
    moved = storage.to(vk)
    query = moved[1:].view(1, 2, 9, 16)
    key = moved[:-1].view(1, 2, 16, 9).transpose(-1, -2)
    torch.testing.assert_close(F.scaled_dot_product_attention(query, key, query).cpu(), expected)


def test_nan_and_infinity(vk: torch.device) -> None:
    query, key, value = heads((1, 1, 6, 4), (1, 1, 7, 4))
    query[..., 1, 0], query[..., 2, 0], value[..., 3, 2] = torch.nan, torch.inf, torch.inf
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(query, key, value)
    actual = F.scaled_dot_product_attention(query.to(vk), key.to(vk), value.to(vk))
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


@pytest.mark.parametrize(
    "shapes",
    [((0, 2, 3, 4), (0, 2, 3, 4)), ((1, 2, 0, 4), (1, 2, 3, 4)), ((1, 2, 3, 4), (1, 2, 0, 4))],
)
def test_empty(vk: torch.device, shapes: tuple[Any, Any]) -> None:
    tensors = heads(*shapes)
    expected = passes(F.scaled_dot_product_attention, tensors)
    actual = passes(F.scaled_dot_product_attention, [tensor.to(vk) for tensor in tensors])
    for own, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(own.cpu(), other)


def test_compiled(vk: torch.device) -> None:
    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query * 2, key.sin(), value, is_causal=True).relu()

    tensors = heads((2, 2, 45, 16), (2, 2, 45, 16))
    expected = passes(function, [tensor.double() for tensor in tensors])
    compiled = torch.compile(function, backend="torchvk")
    actual = passes(compiled, [tensor.to(vk) for tensor in tensors])
    for own, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(own.cpu(), other.float(), rtol=1e-5, atol=1e-5)


def test_widths_vary(vk: torch.device) -> None:
    """Eager sizes become symbols when they change; widths of heads stay what the code was made for."""
    for width in (8, 12):
        check(vk, heads((1, 1, 6, 4), (1, 1, 7, 4), value=width))


def test_lengths_vary_without_compiling_again(vk: torch.device) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("torchvk")
    compiled = torch.compile(F.scaled_dot_product_attention, backend=counter)
    for length in (16, 20, 33, 48):
        check(vk, heads((1, 2, length, 8), (1, 2, length, 8)), compiled, is_causal=True)
    assert counter.frame_count <= 2


def test_memory_grows_with_the_length_only(vk: torch.device) -> None:
    def peak(length: int) -> int:
        tensors = [torch.randn(1, 4, length, 8, device=vk).requires_grad_() for _ in range(3)]
        torch.vk.synchronize()  # type: ignore[attr-defined]
        before = torch.vk.memory_allocated()  # type: ignore[attr-defined]
        torch.vk.reset_peak_memory_stats()  # type: ignore[attr-defined]
        output = F.scaled_dot_product_attention(*tensors)
        torch.autograd.grad(output, tensors, output.detach())
        return torch.vk.max_memory_allocated() - before  # type: ignore[attr-defined]

    for length in (256, 1024):
        peak(length)  # The first call, which is compiled, holds one tensor more.
    # Scores would take 16 times as much.
    assert peak(1024) <= 4.1 * peak(256)


def test_second_derivative_is_refused_or_decomposed(vk: torch.device) -> None:
    tensors = [tensor.to(vk).requires_grad_() for tensor in heads((1, 1, 5, 4), (1, 1, 5, 4))]
    (gradient,) = torch.autograd.grad(
        F.scaled_dot_product_attention(*tensors).sum(), tensors[:1], create_graph=True
    )
    with pytest.raises(RuntimeError, match=r"SDPBackend\.MATH"):
        gradient.sum().backward()
    with sdpa_kernel(SDPBackend.MATH):
        output = F.scaled_dot_product_attention(*tensors)
    (gradient,) = torch.autograd.grad(output.sum(), tensors[:1], create_graph=True)
    gradient.sum().backward()


def test_backends_of_sdpa_kernel(vk: torch.device) -> None:
    arguments = [torch.randn(1, 1, 5, 4, device=vk) for _ in range(3)]

    def dispatches(*backends: SDPBackend, in_order: bool = False) -> int:
        with sdpa_kernel(list(backends), set_priority=in_order):
            F.scaled_dot_product_attention(*arguments)
            with torchvk_compile.audit() as audit:
                F.scaled_dot_product_attention(*arguments)
        return audit.dispatches

    assert dispatches(SDPBackend.OVERRIDEABLE, SDPBackend.MATH) == 1
    assert dispatches(SDPBackend.EFFICIENT_ATTENTION) == 1
    assert dispatches(SDPBackend.MATH) > 1
    assert dispatches(SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, in_order=True) > 1
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="float64"):
        F.scaled_dot_product_attention(*(tensor.double() for tensor in arguments))


def test_wrong_arguments(vk: torch.device) -> None:
    query, key = torch.randn(1, 2, 5, 4, device=vk), torch.randn(1, 2, 5, 3, device=vk)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(query, key, key)
    with pytest.raises(RuntimeError, match="dtype"):
        F.scaled_dot_product_attention(query, query.half(), query)
    with pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(
            query, query, query, torch.ones(5, 5, dtype=torch.bool, device=vk), is_causal=True
        )


def test_forward_mode_decomposes(vk: torch.device) -> None:
    query, key, value = heads((1, 1, 5, 4), (1, 1, 6, 4))

    def derivative(*tensors: torch.Tensor) -> torch.Tensor:
        query, key, value = tensors
        return torch.func.jvp(
            lambda x: F.scaled_dot_product_attention(x, key, value),
            (query,),
            (torch.ones_like(query),),
        )[1]

    with sdpa_kernel(SDPBackend.MATH):
        expected = derivative(query, key, value)
    actual = derivative(query.to(vk), key.to(vk), value.to(vk))
    torch.testing.assert_close(actual.cpu(), expected)


def weights_kept(query: torch.Tensor, **settings: Any) -> torch.Tensor:
    """What attention to an identity of values returns: the weights themselves, some of them dropped."""
    length = query.shape[-2]
    return F.scaled_dot_product_attention(
        query,
        query,
        torch.eye(length, device=query.device).expand(*query.shape[:-1], length),
        **settings,
    )


def test_dropout_statistics(vk: torch.device) -> None:
    query = torch.randn(4, 3, 64, 8).to(vk)
    whole = weights_kept(query).cpu()
    torch.manual_seed(5)
    dropped = weights_kept(query, dropout_p=0.25)
    other = weights_kept(query, dropout_p=0.25).cpu()
    torch.manual_seed(5)
    assert torch.equal(dropped, weights_kept(query, dropout_p=0.25))
    dropped = dropped.cpu()
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], whole[kept] / 0.75, rtol=1e-5, atol=1e-6)
    spread = 5 * math.sqrt(0.25 * 0.75 / kept.numel())
    assert abs(kept.float().mean().item() - 0.75) < spread
    # Heads, and calls, drop independently.
    agreement = 0.75**2 + 0.25**2
    spread = 5 * math.sqrt(agreement * (1 - agreement) / kept[0].numel())
    for one, another in ((kept[0], kept[1]), (kept, other != 0)):
        assert abs((one == another).float().mean().item() - agreement) < spread


@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_of_the_backward_pass(vk: torch.device, compiled: bool) -> None:
    """The gradients are those of attention with the weights that the forward pass dropped."""
    query, key, value = heads((2, 2, 30, 8), (2, 2, 45, 8), value=45)
    function = F.scaled_dot_product_attention
    if compiled:
        function = torch.compile(function, backend="torchvk")
    settings = {"dropout_p": 0.4}
    identity = torch.eye(45).expand(2, 2, 45, 45)
    torch.manual_seed(3)
    mask = passes(function, [t.to(vk) for t in (query, key, identity)], **settings)[0].cpu() != 0

    def expected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(8), -1)
        return (weights * mask / 0.6) @ value

    torch.manual_seed(3)
    actual = passes(function, [t.to(vk) for t in (query, key, value)], **settings)
    for own, other in zip(actual, passes(expected, [query, key, value]), strict=True):
        torch.testing.assert_close(own.cpu(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_query_with_one_key_has_no_gradient_in_16_bits(
    vk: torch.device, dtype: torch.dtype
) -> None:
    """Its two parts cancel, which they did not if one of them were taken from the rounded output."""
    tensors = [(4 * tensor).to(vk) for tensor in heads((2, 3, 5, 8), (2, 3, 5, 8), dtype=dtype)]
    _, gradient, *_ = passes(F.scaled_dot_product_attention, tensors, is_causal=True)
    assert gradient[:, :, 0].abs().max().item() < 1e-3
    assert gradient[:, :, 1:].abs().max().item() > 0.1
