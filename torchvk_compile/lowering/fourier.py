"""Discrete Fourier transforms: aten._fft_c2c, _fft_r2c, _fft_c2r, on which all of torch.fft and torch.stft stand.

In: the three ATen operators. Out: rules in `complex_table`, made of pointwise operators and `torchvk::fourier`, one
launch of a kernel of `codegen/fourier.py`. Forbidden: Slang text; plain evaluation of the defining sum for long rows.

A row that does not fit shared memory is transformed in two steps along a rectangle (D. H. Bailey, "FFTs in external or
hierarchical memory", 1990). A length with a large prime factor becomes a convolution (L. I. Bluestein, 1970) and so
three transforms of a length without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchvk_compile.codegen.fourier import Transform, longest_row, radices, transform_rows
from torchvk_compile.errors import UnsupportedOperatorError
from torchvk_compile.lowering.complex_table import join, rule

_aten = torch.ops.aten

_LONGEST = 1 << 28
"""Whole numbers up to eight times the length are computed in 32 bits."""

_library = torch.library.Library("torchvk", "FRAGMENT")
_library.define(
    "fourier(Tensor x, int length, int stored, str input, str output, bool inverse, float scale, SymInt rows, "
    "SymInt inner, SymInt inner_out, int turn_length=0, SymInt turn_inner=1) -> Tensor"
)


class _Arguments(NamedTuple):
    """The operator's arguments behind its tensor: fields of `Transform`, then arguments of `transform_rows`."""

    length: int
    stored: int
    input: str
    output: str
    inverse: bool
    scale: float
    rows: Any
    inner: Any
    inner_out: Any
    turn_length: int = 0
    turn_inner: Any = 1


def _empty(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    given = _Arguments(*arguments)
    size = [given.rows // given.inner_out, given.stored, given.inner_out]
    return x.new_empty(size if given.output == "real" else [*size, 2])


_library.impl("fourier", _empty, "Meta")


def _lower(x: Any, *arguments: Any) -> Any:
    import sympy

    given = _Arguments(*arguments)
    transform = Transform(*given[:6], given.turn_length)
    sizes = (given.rows, given.inner, given.inner_out, given.turn_inner)
    return transform_rows(x, transform, *(sympy.sympify(size) for size in sizes))


def register_fourier() -> None:
    """Lower the kernel's operator on vk tensors."""
    from torchvk_compile.lowering.registry import route

    route(torch.ops.torchvk.fourier.default, _lower)


# Along one dimension -------------------------------------------------------------------------------------------------


class _Row:
    """A tensor as [outer, length, inner] around the dimension that is transformed."""

    def __init__(self, x: torch.Tensor, dim: int, length: int) -> None:
        self.x, self.dim, self.length = x, dim, length
        self.outer = math.prod(x.shape[:dim])
        self.inner = math.prod(x.shape[dim + 1 :])

    def shaped(self, result: torch.Tensor) -> torch.Tensor:
        """A result [outer, places, inner, ...] with the dimensions of the tensor."""
        around = [*self.x.shape[: self.dim], result.shape[1], *self.x.shape[self.dim + 1 :]]
        return result.reshape([*around, *result.shape[3:]])


def _fits(length: int, dtype: torch.dtype) -> bool:
    return length <= longest_row(dtype) and radices(length) is not None


def _launch(
    x: torch.Tensor,
    length: int,
    outer: Any,
    inner: Any,
    *,
    inverse: bool,
    scale: float = 1.0,
    stored: int | None = None,
    input: str = "pairs",
    output: str = "pairs",
    inner_out: Any = None,
    turn: tuple[int, Any] = (0, 1),
) -> torch.Tensor:
    arguments = _Arguments(
        length=length,
        stored=length if stored is None else stored,
        input=input,
        output=output,
        inverse=inverse,
        scale=scale,
        rows=outer * inner,
        inner=inner,
        inner_out=inner if inner_out is None else inner_out,
        turn_length=turn[0],
        turn_inner=turn[1],
    )
    return torch.ops.torchvk.fourier.default(x.contiguous(), *arguments)


def _transformed(
    x: torch.Tensor, length: int, outer: Any, inner: Any, inverse: bool, scale: float
) -> torch.Tensor:
    """Pairs [outer, length, inner, 2] (in memory like that, of any shape) → the same of their transforms."""
    if length == 1:
        return x.reshape([outer, 1, inner, 2]) * scale
    if _fits(length, x.dtype):
        return _launch(x, length, outer, inner, inverse=inverse, scale=scale)
    if radices(length) is None:
        return _bluestein(x.reshape([outer, length, inner, 2]), inverse, scale)
    return _in_two_steps(x, length, outer, inner, inverse, scale)


def _in_two_steps(
    x: torch.Tensor, length: int, outer: Any, inner: Any, inverse: bool, scale: float
) -> torch.Tensor:
    """Place j1 n2 + j2 of a row is column j2 of a rectangle: first the columns, each result turned, then the rows."""
    first = _divisor(length, longest_row(x.dtype))
    second = length // first
    columns = _launch(x, first, outer, second * inner, inverse=inverse, turn=(length, inner))
    if _fits(second, x.dtype):
        # Row k1 of the rectangle has places k1 + n1 k2 of the transform.
        result = _launch(
            columns,
            second,
            outer * first,
            inner,
            inverse=inverse,
            scale=scale,
            inner_out=first * inner,
        )
        return result.reshape([outer, length, inner, 2])
    rows = _transformed(columns, second, outer * first, inner, inverse, scale)
    whole = rows.reshape([outer, first, second, inner, 2]).transpose(1, 2)
    return whole.reshape([outer, length, inner, 2])


def _divisor(length: int, longest: int) -> int:
    """The divisor nearest to the square root that fits and leaves, if possible, a row that fits."""
    fitting = [d for d in range(1, longest + 1) if length % d == 0]
    root = math.isqrt(length)
    return min(fitting, key=lambda d: abs(math.log(d / root)))


def _bluestein(x: torch.Tensor, inverse: bool, scale: float) -> torch.Tensor:
    """j k = (j² + k² - (k - j)²) / 2 makes the transform a convolution with the chirp exp(± pi i k² / n)."""
    outer, length, inner, _ = x.shape
    padded = _length("aten._fft_c2c", x, _smooth_length(2 * length - 1))
    chirp = _chirp(length, x, inverse)
    turned = _times(x, chirp[:, None, :])
    long = _transformed(
        torch.nn.functional.pad(turned, (0, 0, 0, 0, 0, padded - length)),
        padded,
        outer,
        inner,
        False,
        1.0,
    )
    opposite = torch.stack((chirp[:, 0], -chirp[:, 1]), -1)
    wrapped = torch.cat(
        (
            opposite,
            opposite.new_zeros([padded - 2 * length + 1, 2]),
            opposite[1:].flip(0),
        )
    )
    filter = _transformed(wrapped, padded, 1, 1, False, 1.0).reshape([padded, 1, 2])
    convolved = _transformed(_times(long, filter), padded, outer, inner, True, scale / padded)
    return _times(convolved[:, :length], chirp[:, None, :])


def _chirp(length: int, like: torch.Tensor, inverse: bool) -> torch.Tensor:
    """exp(-pi i k² / n), or its conjugate, for k < n: [length, 2]."""
    k = torch.arange(length, dtype=torch.int64, device=like.device)
    place = (k * k) % (2 * length)
    # Eighths of a turn, and the rest counted from the nearer quarter: see torchvk_fourier.slang.
    eighth = (4 * place) // length
    rest = 4 * place - eighth * length
    rest = torch.where((eighth & 1) != 0, length - rest, rest)
    angle = rest.to(like.dtype) / float(length) * (math.pi / 4)
    sine, cosine = torch.sin(angle), torch.cos(angle)
    steep = ((eighth + 1) & 2) != 0
    x, y = torch.where(steep, sine, cosine), torch.where(steep, cosine, sine)
    x = torch.where(((eighth + 2) & 4) != 0, -x, x)
    below = (eighth & 4) != 0 if inverse else (eighth & 4) == 0
    y = torch.where(below, -y, y)
    return torch.stack((x, y), -1)


def _smooth_length(least: int) -> int:
    """A power of two times 1, 3, 5 or 9 that is not below `least`, as small as possible."""
    return min(factor << max(0, -(-least // factor) - 1).bit_length() for factor in (1, 3, 5, 9))


def _times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products of pairs."""
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imag = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return torch.view_as_real(join((real, imag)))


# Rules ---------------------------------------------------------------------------------------------------------------


def _scale(normalization: int, lengths: Sequence[int]) -> float:
    """ATen's fft_norm_mode (aten/src/ATen/native/SpectralOpsUtils.h): none, by the root, by all."""
    count = math.prod(lengths)
    return (1.0, 1.0 / math.sqrt(count), 1.0 / count)[normalization]


def _length(op: str, x: torch.Tensor, size: Any) -> int:
    """The size as a number, which the kernel is made for."""
    length = int(size)
    if length > _LONGEST:
        raise UnsupportedOperatorError(
            op,
            dtype=x.dtype,
            shape=tuple(x.shape),
            reason=f"a row would have {length} places, more than {_LONGEST}",
        )
    return length


def _along(pairs: torch.Tensor, dims: Sequence[int], inverse: bool, scale: float) -> torch.Tensor:
    """Transform pairs along several dimensions; the last launch scales."""
    for position, dim in enumerate(dims):
        length = _length("aten._fft_c2c", pairs, pairs.shape[dim])
        row = _Row(pairs[..., 0], dim, length)
        factor = scale if position == len(dims) - 1 else 1.0
        pairs = row.shaped(
            _transformed(pairs.contiguous(), length, row.outer, row.inner, inverse, factor)
        )
    return pairs if dims else pairs * scale


@rule(_aten._fft_c2c.default)
def fft_c2c(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> torch.Tensor:
    """Complex to complex along `dim`."""
    if not dim:
        return x.clone()
    dims = [d % x.dim() for d in dim]
    scale = _scale(normalization, [int(x.shape[d]) for d in dims])
    return torch.view_as_complex(_along(torch.view_as_real(x), dims, not forward, scale))


@rule(_aten._fft_r2c.default)
def fft_r2c(
    x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> torch.Tensor:
    """Real to complex along the last of `dim`, complex to complex along the others."""
    *others, last = [d % x.dim() for d in dim]
    scale = _scale(normalization, [int(x.shape[d]) for d in dim])
    length = _length("aten._fft_r2c", x, x.shape[last])
    stored = length // 2 + 1 if onesided else length
    row = _Row(x, last, length)
    own = 1.0 if others else scale
    if length > 1 and _fits(length, x.dtype):
        pairs = _launch(
            x, length, row.outer, row.inner, inverse=False, scale=own, stored=stored, input="real"
        )
    else:
        whole = torch.view_as_real(join((x, 0.0))).contiguous()
        pairs = _transformed(whole, length, row.outer, row.inner, False, own)[:, :stored]
    return torch.view_as_complex(
        _along(row.shaped(pairs), others, False, scale) if others else row.shaped(pairs)
    )


@rule(_aten._fft_c2r.default)
def fft_c2r(
    x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: Any
) -> torch.Tensor:
    """The first half of a spectrum along the last of `dim` to real, the inverse along the others before."""
    *others, last = [d % x.dim() for d in dim]
    length = _length("aten._fft_c2r", x, last_dim_size)
    scale = _scale(normalization, [*(int(x.shape[d]) for d in others), length])
    pairs = torch.view_as_real(x)
    half = length // 2 + 1
    if pairs.shape[last] != half:
        pairs = pairs.narrow(last, 0, half)
    if others:
        pairs = _along(pairs, others, True, 1.0)
    row = _Row(pairs[..., 0], last, length)
    if length > 1 and _fits(length, pairs.dtype):
        real = _launch(
            pairs,
            length,
            row.outer,
            row.inner,
            inverse=True,
            scale=scale,
            input="half",
            output="real",
        )
        return row.shaped(real)
    mirrored = pairs.narrow(last, 1, length - half).flip(last)
    opposite = torch.stack((mirrored[..., 0], -mirrored[..., 1]), -1)
    whole = torch.cat((pairs, opposite), last)
    result = _transformed(whole.contiguous(), length, row.outer, row.inner, True, scale)
    return row.shaped(result[..., 0])
