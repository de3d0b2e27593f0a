"""Linear algebra: factorizations, solutions, spectra, and what is made of them.

In: ATen operators on real vk tensors. Out: launches of `codegen/matrix_kernels.py` and the operators around them.
Forbidden: Slang text; results that are wrong without a word (see `primitives.check_errors`).
"""

from __future__ import annotations


def register_linalg() -> None:
    """Route the operators of linear algebra here, for vk tensors."""
    from torchvk_compile.lowering.linalg import (
        cholesky,
        ldl,
        lu,
        matrix_exp,
        primitives,
        qr,
        spectra,
        triangular,
    )

    primitives.register_primitives()
    for room in (triangular, cholesky, lu, ldl, qr, spectra, matrix_exp):
        room.register()
