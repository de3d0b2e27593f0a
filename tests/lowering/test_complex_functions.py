"""Elementary functions of complex numbers: accuracy all over the plane, branch cuts, infinities, gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

Check = Callable[..., None]

FUNCTIONS = [
    "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
    "atan", "asinh", "acosh", "atanh", "sqrt", "rsqrt", "sigmoid", "exp2",
]  # fmt: skip


def _plane() -> torch.Tensor:
    """Points of all magnitudes in all directions, some close to the axes and to ±1 and ±i."""
    generator = torch.Generator().manual_seed(0)
    size = 10.0 ** torch.linspace(-6, 1.2, 97)
    turn = torch.rand(97, generator=generator) * 6.28
    points = torch.polar(size, turn)
    near = torch.randn(40, dtype=torch.complex64, generator=generator) * 1e-3
    centres = torch.tensor([1, -1, 1j, -1j], dtype=torch.complex64).repeat(10)
    return torch.cat([points, near + centres, points.real + 1e-4j * points.imag])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy_over_the_plane(vk: torch.device, name: str) -> None:
    x = _plane()
    function = getattr(torch, name)
    exact = function(x.to(torch.complex128))
    actual = torch.compile(function, backend="torchvk")(x.to(vk)).cpu().to(torch.complex128)
    bounded = exact.abs() < 1e30
    error = ((actual - exact).abs() / exact.abs().clamp_min(1e-30))[bounded]
    worst = int(error.argmax())
    # Sines and tangents of large angles inherit the accuracy of the reduction of the angle, not more.
    assert error[worst] < 2e-6, (
        name,
        x[bounded][worst],
        actual[bounded][worst],
        exact[bounded][worst],
    )


@pytest.mark.parametrize("name", ["sqrt", "log", "asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_branch_cuts_have_the_sign_of_zero(vk: torch.device, name: str) -> None:
    axis = torch.tensor([-3.0, -1.5, -0.5, 0.5, 1.5, 3.0], dtype=torch.float64)
    zero = torch.zeros_like(axis)
    points = [torch.complex(axis, s * zero) for s in (1.0, -1.0)]
    points += [torch.complex(s * zero, axis) for s in (1.0, -1.0)]
    x = torch.cat(points).to(torch.complex64)
    numpy_name = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}.get(name, name)
    numpy_name = {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}.get(name, numpy_name)
    expected = torch.from_numpy(getattr(np, numpy_name)(x.to(torch.complex128).numpy()))
    actual = getattr(torch, name)(x.to(vk)).cpu()
    torch.testing.assert_close(actual, expected.to(torch.complex64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "point", "expected"),
    [
        ("exp", complex(-torch.inf, torch.inf), 0),
        ("exp", complex(torch.inf, 0), complex(torch.inf, 0)),
        ("exp", complex(100, 1.57079637), complex(-1.175e36, torch.inf)),
        ("log", 0j, complex(-torch.inf, 0)),
        ("log", complex(-torch.inf, torch.nan), complex(torch.inf, torch.nan)),
        ("log", complex(3e38, 3e38), complex(89.0, 0.785398)),
        ("sqrt", complex(torch.nan, torch.inf), complex(torch.inf, torch.inf)),
        ("sqrt", complex(-torch.inf, 1), complex(0, torch.inf)),
        ("sqrt", complex(3e38, 3e38), complex(1.90304e19, 7.88266e18)),
        ("sqrt", complex(0, -0.0), 0),
        ("tanh", complex(torch.inf, 1), 1),
        ("tanh", complex(50, 1), 1),
        ("sinh", complex(torch.inf, 0), complex(torch.inf, 0)),
        ("acosh", complex(torch.inf, 1), complex(torch.inf, 0)),
        ("atanh", complex(1, 0), complex(torch.inf, 0)),
        ("atanh", complex(torch.inf, 1), complex(0, 1.570796)),
        ("asin", complex(0, torch.inf), complex(0, torch.inf)),
        ("acos", complex(-torch.inf, 1), complex(3.141593, -torch.inf)),
    ],
)
def test_limits(vk: torch.device, name: str, point: complex, expected: complex) -> None:
    x = torch.tensor([point], dtype=torch.complex64)
    actual = getattr(torch, name)(x.to(vk)).cpu()
    wanted = torch.tensor([expected], dtype=torch.complex64)
    torch.testing.assert_close(
        torch.view_as_real(actual), torch.view_as_real(wanted), rtol=1e-3, atol=1e-6, equal_nan=True
    )


def test_sinc(assert_close_like_cpu: Check) -> None:
    assert_close_like_cpu(torch.sinc, torch.tensor([0j, 1 + 1j, -0.3 + 0.1j, 1e-5j]))


@pytest.mark.parametrize("exponent", [0, 0.5, -0.5, 1, 2, 3, -1, -2, 1.7, 2.5 - 1j])
def test_powers(assert_close_like_cpu: Check, exponent: complex) -> None:
    x = torch.tensor([1 + 2j, -3.0 + 0j, 0.5 - 0.25j, 1e-3j])

    def powers(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return z**exponent, exponent**z if exponent else z, torch.pow(z, z)

    assert_close_like_cpu(powers, x, rtol=1e-5, atol=1e-6)


def test_powers_of_zero(vk: torch.device) -> None:
    zero = torch.zeros(3, dtype=torch.complex64)
    exponents = torch.tensor([0j, 2 + 0j, 1 + 1j])
    assert torch.pow(zero.to(vk), exponents.to(vk)).cpu().tolist() == [1, 0, 0]


@pytest.mark.long
def test_gradients(assert_close_like_cpu: Check) -> None:
    x = torch.randn(6, dtype=torch.complex64, generator=torch.Generator().manual_seed(3))

    def all_of_them(z: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(torch, name)(z) for name in FUNCTIONS]

    assert_close_like_cpu(all_of_them, x.requires_grad_(), eager=False, rtol=1e-4, atol=1e-4)


@pytest.mark.long
def test_double_precision(vk: torch.device) -> None:
    x = _plane().to(torch.complex128)[::7]
    for name in FUNCTIONS:
        actual, expected = getattr(torch, name)(x.to(vk)).cpu(), getattr(torch, name)(x)
        torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-15, msg=name)
