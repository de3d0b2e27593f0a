"""Operators of our own that the ATen operators of linear algebra are written with, each one kernel.

In: real tensors (matrix count, rows, columns), with a last dimension of 2 where elements are complex. Out: a tensor,
often a record per matrix (see the kernel's shell). Forbidden: batches of several dimensions, broadcasting; callers
reshape.

They live in the namespace ``torchvk`` and exist inside lowerings only: no user graph contains them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

from torchvk_compile.codegen.dtypes import literal
from torchvk_compile.codegen.matrix_kernels import launch

_library = torch.library.Library("torchvk", "FRAGMENT")


def register_primitives() -> None:
    """Define the operators, the shapes of their results and their lowerings."""
    for schema, shape, lowering in _PRIMITIVES:
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, shape, "Meta")
        lowerings[getattr(torch.ops.torchvk, name).default] = lowering
    torch.fx.node.has_side_effect(torch.ops.torchvk.check_errors.default)


def _flag(value: bool) -> sympy.Expr:
    return sympy.Integer(int(value))


def _sizes_of(a: Any) -> tuple[list[sympy.Expr], bool]:
    """Matrix count, rows and columns, and whether the elements are pairs."""
    size = list(a.get_size())
    return size[:3], len(size) == 4


# Cholesky ------------------------------------------------------------------------------------------------------


def _cholesky_shape(a: torch.Tensor) -> torch.Tensor:
    count, n, _, *pair = a.shape
    return a.new_empty(count, n * n * (2 if pair else 1) + 1)


def _cholesky(a: Any) -> ir.TensorBox:
    (count, n, _), paired = _sizes_of(a)
    return launch(
        "cholesky",
        {"matrices": a},
        [count, n * n * (2 if paired else 1) + 1],
        {"order": n},
        values={"complex": paired},
    )


# LU ------------------------------------------------------------------------------------------------------------


def _lu_shape(a: torch.Tensor, pivot: bool) -> torch.Tensor:
    count, m, n, *pair = a.shape
    return a.new_empty(count, m * n * (2 if pair else 1) + min(m, n) + 1)


def _lu(a: Any, pivot: bool) -> ir.TensorBox:
    (count, m, n), paired = _sizes_of(a)
    return launch(
        "lu",
        {"matrices": a},
        [count, m * n * (2 if paired else 1) + sympy.Min(m, n) + 1],
        {"height": m, "width": n, "pivoting": _flag(pivot)},
        values={"complex": paired},
    )


def _permutation_shape(pivots: torch.Tensor, n: int, inverse: bool) -> torch.Tensor:
    return pivots.new_empty(pivots.shape[0], n)


def _permutation(pivots: Any, n: Any, inverse: bool) -> ir.TensorBox:
    count, k = pivots.get_size()
    return launch(
        "permutation",
        {"pivots": pivots},
        [count, sympy.sympify(n)],
        {"step_count": k, "order": sympy.sympify(n), "inverse": _flag(inverse)},
    )


# Triangular systems --------------------------------------------------------------------------------------------


def _triangular_shape(a: torch.Tensor, b: torch.Tensor, upper: bool, unit: bool) -> torch.Tensor:
    return b.new_empty(b.shape)


def _triangular(a: Any, b: Any, upper: bool, unit: bool) -> ir.TensorBox:
    (_, n, width), paired = _sizes_of(b)
    return launch(
        "triangular",
        {"triangles": a, "right_sides": b},
        list(b.get_size()),
        {"order": n, "width": width, "upper": _flag(upper), "unit": _flag(unit)},
        columns=_columns_for(width),
        blocked_width=width,
        values={"complex": paired},
    )


def _columns_for(width: sympy.Expr) -> int:
    """Columns of a team that works on `width` columns: one for a single column, so that all invocations help."""
    return 1 if width == 1 else 16


# QR ------------------------------------------------------------------------------------------------------------


def _qr_shape(a: torch.Tensor) -> torch.Tensor:
    count, m, n = a.shape
    return a.new_empty(count, m * n + min(m, n))


def _qr(a: Any) -> ir.TensorBox:
    count, m, n = a.get_size()
    return launch(
        "qr", {"matrices": a}, [count, m * n + sympy.Min(m, n)], {"height": m, "width": n}
    )


def _reflect_shape(
    v: torch.Tensor, tau: torch.Tensor, c: torch.Tensor, transposed: bool
) -> torch.Tensor:
    return c.new_empty(c.shape)


def _reflect(v: Any, tau: Any, c: Any, transposed: bool) -> ir.TensorBox:
    _, m, width = c.get_size()
    return launch(
        "reflect",
        {"reflectors": v, "factors": tau, "operands": c},
        list(c.get_size()),
        {
            "height": m,
            "width": width,
            "reflector_width": v.get_size()[-1],
            "reflection_count": tau.get_size()[-1],
            "transposed": _flag(transposed),
        },
        columns=_columns_for(width),
        blocked_width=width,
    )


# Symmetric indefinite matrices ---------------------------------------------------------------------------------


def _ldl_shape(a: torch.Tensor) -> torch.Tensor:
    count, n, _ = a.shape
    return a.new_empty(count, n * n + 3 * n + 1)


def _ldl(a: Any) -> ir.TensorBox:
    count, n, _ = a.get_size()
    return launch("ldl", {"matrices": a}, [count, n * n + 3 * n + 1], {"order": n})


def _ldl_solve_shape(factors: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return b.new_empty(b.shape)


def _ldl_solve(factors: Any, pivots: Any, b: Any) -> ir.TensorBox:
    _, n, width = b.get_size()
    return launch(
        "ldl_solve",
        {"factors": factors, "pivots": pivots, "right_sides": b},
        list(b.get_size()),
        {"order": n, "width": width},
        columns=None,
        blocked_width=width,
    )


# Powers --------------------------------------------------------------------------------------------------------


def _squaring_shape(a: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    count, n, _ = a.shape
    return a.new_empty(count, 2, n, n)


def _squaring(a: Any, times: Any) -> ir.TensorBox:
    count, n, _ = a.get_size()
    return launch(
        "squaring",
        {"matrices": a, "times": times},
        [count, sympy.Integer(2), n, n],
        {"order": n},
    )


# Spectra -------------------------------------------------------------------------------------------------------

_SWEEPS = 40
"""Jacobi's methods converge quadratically in the end; 6 to 10 sweeps are usual, for any size."""


def _eigh_shape(a: torch.Tensor, vectors: bool) -> torch.Tensor:
    count, n, _ = a.shape
    return a.new_empty(count, 3 * n * n + 3 * n + 3)


def _eigh(a: Any, vectors: bool) -> ir.TensorBox:
    count, n, _ = a.get_size()
    # What is left beside the diagonal changes eigenvalues by its square only. The matrix is scaled to about 1.
    tolerance = torch.finfo(a.get_dtype()).eps / 16
    return launch(
        "eigh",
        {"matrices": a},
        [count, 3 * n * n + 3 * n + 3],
        {"order": n, "with_vectors": _flag(vectors)},
        values={"tolerance": literal(tolerance, a.get_dtype()), "sweeps": _SWEEPS},
    )


_FRANCIS_STEPS = 30
"""Steps of Francis's method that a row may take, as in LAPACK's dlahqr; 2 to 3 are usual."""


def _eig_shape(a: torch.Tensor, vectors: bool) -> torch.Tensor:
    count, n, _ = a.shape
    return a.new_empty(count, 6 * n * n + 3 * n + 1)


def _eig(a: Any, vectors: bool) -> ir.TensorBox:
    count, n, _ = a.get_size()
    dtype = a.get_dtype()
    return launch(
        "eig",
        {"matrices": a},
        [count, 6 * n * n + 3 * n + 1],
        {"order": n, "with_vectors": _flag(vectors)},
        values={
            "epsilon": literal(torch.finfo(dtype).eps, dtype),
            "steps_per_row": _FRANCIS_STEPS,
        },
    )


def _svd_shape(rows: torch.Tensor, vectors: bool) -> torch.Tensor:
    count, n, length = rows.shape
    return rows.new_empty(count, 2 * n * (length + n) + 2 * n + 1)


def _svd(rows: Any, vectors: bool) -> ir.TensorBox:
    count, n, length = rows.get_size()
    dtype = rows.get_dtype()
    epsilon = torch.finfo(dtype).eps
    return launch(
        "svd",
        {"vectors": rows},
        [count, 2 * n * (length + n) + 2 * n + 1],
        {"count": n, "length": length, "with_vectors": _flag(vectors)},
        values={
            "epsilon": literal(epsilon, dtype),
            "negligible": literal(epsilon**4, dtype),
            "sweeps": _SWEEPS,
        },
    )


# Errors --------------------------------------------------------------------------------------------------------


def _check_errors_shape(info: torch.Tensor, name: str, is_matrix: bool) -> None:
    return None


def _check_errors(info: Any, name: str, is_matrix: bool) -> None:
    """Raise torch's LinAlgError where `info` is not 0: host work, between two plans."""
    info.realize()
    check = ir.FallbackKernel.create(
        torch.ops.aten._linalg_check_errors.default, info, name, is_matrix=is_matrix
    )
    assert check is None
    V.graph.operations[-1].has_side_effects = lambda: True  # nothing uses its results: it has none


_PRIMITIVES: tuple[tuple[str, Callable[..., Any], Callable[..., Any]], ...] = (
    ("cholesky(Tensor a) -> Tensor", _cholesky_shape, _cholesky),
    ("lu(Tensor a, bool pivot) -> Tensor", _lu_shape, _lu),
    (
        "permutation(Tensor pivots, SymInt n, bool inverse) -> Tensor",
        _permutation_shape,
        _permutation,
    ),
    (
        "solve_triangular(Tensor a, Tensor b, bool upper, bool unit) -> Tensor",
        _triangular_shape,
        _triangular,
    ),
    ("qr(Tensor a) -> Tensor", _qr_shape, _qr),
    (
        "reflect(Tensor v, Tensor tau, Tensor c, bool transposed) -> Tensor",
        _reflect_shape,
        _reflect,
    ),
    ("ldl(Tensor a) -> Tensor", _ldl_shape, _ldl),
    (
        "ldl_solve(Tensor factors, Tensor pivots, Tensor b) -> Tensor",
        _ldl_solve_shape,
        _ldl_solve,
    ),
    ("squaring(Tensor a, Tensor times) -> Tensor", _squaring_shape, _squaring),
    ("eigh(Tensor a, bool vectors) -> Tensor", _eigh_shape, _eigh),
    ("eig(Tensor a, bool vectors) -> Tensor", _eig_shape, _eig),
    ("svd(Tensor rows, bool vectors) -> Tensor", _svd_shape, _svd),
    (
        "check_errors(Tensor info, str name, bool is_matrix) -> ()",
        _check_errors_shape,
        _check_errors,
    ),
)
