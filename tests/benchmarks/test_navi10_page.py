"""Reading RDNA assembly and predicting times from it."""

from __future__ import annotations

import pytest
from target.assembly import main_loop, whole
from target.page import page
from target.roofline import LANE_INSTRUCTIONS, predict

from torchvk_compile.cards import RX_5600_XT

_ASSEMBLY = """After Spilling:
     v1: %1 = v_add_f32 %2, %3
BB0:
    s_mov_b32 s0, s3                       ; be800303
    v_mul_f32_e32 v1, v2, v3               ; 10020702
BB1:
    v_mov_b32_e32 v9, 0                    ; 7e120280
BB2:
    v_fma_f32 v1, v2, v3, v4               ; d54b0001
    (then repeated 2 times)
    v_fmac_f32_e32 v1, v2, v3              ; 56020702
    v_pk_fma_f16 v1, v2, v3, v4            ; cc0e4001
    v_add_nc_u32_e32 v5, 16, v5            ; 4a0a0a90
    s_cbranch_scc1 BB2                     ; bf85fff0
BB3:
    s_cbranch_scc1 BB1                     ; bf85fff0
    v_add_f32_e32 v1, v2, v3               ; 06020702
    s_endpgm                               ; bf810000
"""


def test_the_main_loop_is_the_innermost_one() -> None:
    loop = main_loop(_ASSEMBLY)
    assert (loop.loop, loop.vector, loop.fused, loop.flops) == (True, 6, 5, 12)
    assert loop.fused_share == pytest.approx(5 / 6)


def test_the_whole_kernel_counts_what_is_outside_of_loops() -> None:
    kernel = whole(_ASSEMBLY)
    assert (kernel.loop, kernel.vector, kernel.flops) == (False, 9, 14)


def test_a_kernel_without_a_loop_is_its_own_main_loop() -> None:
    straight = _ASSEMBLY.replace("s_cbranch_scc1 BB2", "s_nop 0").replace(
        "s_cbranch_scc1 BB1", "s_nop 0"
    )
    assert main_loop(straight) == whole(straight)


def test_a_loop_without_vector_instructions_is_no_main_loop() -> None:
    scalar = "BB0:\n v_add_f32_e32 v1, v2, v3\nBB1:\n s_add_u32 s7, s5, s6\n s_cbranch_scc1 BB1\n"
    assert main_loop(scalar) == whole(scalar)


def test_memory_or_instructions_whichever_takes_longer() -> None:
    loop, kernel = main_loop(_ASSEMBLY), whole(_ASSEMBLY)
    memory = predict(loop, kernel, invocations=256, nbytes=10**9, flops=10**6)
    assert memory.seconds == memory.limit == pytest.approx(10**9 / RX_5600_XT.bytes_per_second)
    assert memory.share == 1.0
    # Twelve operations in six instructions: one fused multiply-add could do two in each.
    busy = predict(loop, kernel, invocations=256, nbytes=0, flops=10**12)
    assert busy.seconds == pytest.approx(10**12 / 2 / LANE_INSTRUCTIONS)
    assert busy.limit == pytest.approx(10**12 / RX_5600_XT.flops)


def test_the_page_names_spilling_kernels_by_number() -> None:
    row = {"kernel": "k", "vgprs": 40, "lds": 0, "waves": 10.0, "spills": 4, "fused_share": 0.5}
    row |= {"loop": False, "bytes": 8, "flops": 8, "seconds": 2e-6, "limit": 1e-6}
    text = page("a device", {"a model": [row, row]})
    assert "| a model | 2 | 2 | 40 | 10 | 0.00 ms | 50% |" in text
    assert "| `k` | 2 | 40 | 0 | 10 | 50% | 4.0 µs | 50% |" in text
