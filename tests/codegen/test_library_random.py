"""Philox: the numbers of the published algorithm, and their distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from shader_functions import evaluate

MODULES = ["torchvk_random"]
COUNT = 4000


def philox(seed: int, offset: int) -> list[int]:
    """Philox 4x32-10 as Salmon et al. describe it."""
    mask = 0xFFFFFFFF
    key = [seed & mask, seed >> 32 & mask]
    counter = [offset & mask, 0, 0, 0]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second >> 32 ^ counter[1] ^ key[0],
            second & mask,
            first >> 32 ^ counter[3] ^ key[1],
            first & mask,
        ]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def uniform(bits: int) -> np.float32:
    folded = bits if bits < 1 << 31 else (1 << 32) - 1 - bits
    return np.float32(folded) * np.float32(4.6566127342e-10)


def operands(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(COUNT, seed, np.int64), np.arange(COUNT, dtype=np.int64)


@pytest.mark.parametrize("seed", [0, 1, -1234567890123456789, 2**62 + 12345])
def test_numbers_follow_from_seed_and_offset(seed: int) -> None:
    seeds, offsets = operands(seed)
    words = [philox(seed, offset) for offset in range(COUNT)]
    actual = evaluate("randomUniform(a, b)", seeds, offsets, result=np.float32, modules=MODULES)
    assert (actual == np.array([uniform(w[0]) for w in words])).all()
    assert (actual >= 0).all() and (actual < 1).all()

    actual = evaluate("randomNormal(a, b)", seeds, offsets, result=np.float32, modules=MODULES)
    pairs = [(max(1e-7, float(uniform(w[0]))), float(uniform(w[1]))) for w in words]
    expected = [math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v) for u, v in pairs]
    np.testing.assert_allclose(actual, expected, atol=2e-6)

    expression = "randomInteger(a, b, -5LL, 1000000000000LL)"
    actual = evaluate(expression, seeds, offsets, result=np.int64, modules=MODULES)
    size = 10**12 + 5
    assert actual.tolist() == [-5 + (w[0] | w[1] << 32) % size for w in words]


def test_moments() -> None:
    seeds, offsets = operands(99)
    draws = evaluate("randomUniform(a, b)", seeds, offsets, result=np.float32, modules=MODULES)
    assert abs(draws.mean() - 0.5) < 0.02 and abs(draws.var() - 1 / 12) < 0.01
    draws = evaluate("randomNormal(a, b)", seeds, offsets, result=np.float32, modules=MODULES)
    assert abs(draws.mean()) < 0.06 and abs(draws.std() - 1) < 0.05


def test_integers_reach_both_ends_and_no_further() -> None:
    seeds, offsets = operands(5)
    expression = "randomInteger(a, b, -3LL, 4LL)"
    draws = evaluate(expression, seeds, offsets, result=np.int64, modules=MODULES)
    assert sorted(set(draws.tolist())) == list(range(-3, 4))


def test_derived_seeds_are_distinct() -> None:
    base, index = operands(42)[0], np.arange(COUNT, dtype=np.int32)
    seeds = evaluate("nthSeed(a, b)", base, index, result=np.int64, modules=MODULES)
    assert len(set(seeds.tolist())) == COUNT
