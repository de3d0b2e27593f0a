"""Fourier transforms: every kind of length, all operators of torch.fft, gradients, accuracy, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Check = Callable[..., None]


def _numbers(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def _distance(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Of two spectra, as a share of the exact one's length."""
    actual, exact = actual.cpu().to(exact.dtype), exact
    return ((actual - exact).norm() / exact.norm()).item()


LENGTHS = [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 30, 49, 97, 128, 210, 1000, 1009, 4096]


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(vk: torch.device, length: int) -> None:
    x = _numbers(3, length)
    on_device, wide = x.to(vk), x.to(torch.complex128)
    assert _distance(torch.fft.fft(on_device), torch.fft.fft(wide)) < 4e-7
    assert _distance(torch.fft.ifft(on_device), torch.fft.ifft(wide)) < 4e-7
    real, wide = on_device.real, wide.real
    assert _distance(torch.fft.rfft(real), torch.fft.rfft(wide)) < 4e-7
    spectrum = torch.fft.rfft(wide)
    back = torch.fft.irfft(spectrum.to(torch.complex64).to(vk), length)
    assert _distance(back, wide) < 4e-7


@pytest.mark.parametrize("length", [8192, 6561, 10010, 20011, 1 << 18])
def test_rows_longer_than_shared_memory(vk: torch.device, length: int) -> None:
    x = _numbers(length)
    assert _distance(torch.fft.fft(x.to(vk)), torch.fft.fft(x.to(torch.complex128))) < 5e-7
    real = x.real
    assert _distance(torch.fft.rfft(real.to(vk)), torch.fft.rfft(real.to(torch.float64))) < 5e-7


@pytest.mark.parametrize("length", [12, 97, 2048, 4096])
def test_double_precision(vk: torch.device, length: int) -> None:
    x = _numbers(2, length, dtype=torch.complex128)
    assert _distance(torch.fft.fft(x.to(vk)), torch.fft.fft(x)) < 2e-15
    assert _distance(torch.fft.ifft(x.to(vk)), torch.fft.ifft(x)) < 2e-15


def test_a_million_places_in_three_steps(vk: torch.device) -> None:
    x = torch.zeros(1 << 20, dtype=torch.complex64)
    x[3] = 1
    actual = torch.fft.fft(x.to(vk)).cpu()
    angle = -6 * torch.pi * torch.arange(1 << 20, dtype=torch.float64) / (1 << 20)
    assert (actual - torch.polar(torch.ones_like(angle), angle)).abs().max() < 1e-6


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
def test_dimensions_and_norms(assert_close_like_cpu: Check, dim: int, norm: str) -> None:
    def transforms(x: torch.Tensor) -> Any:
        return torch.fft.fft(x, dim=dim, norm=norm), torch.fft.ifft(x, dim=dim, norm=norm)

    assert_close_like_cpu(
        transforms, _numbers(4, 6, 5, 3), eager=norm == "ortho", rtol=1e-5, atol=1e-5
    )


def test_all_of_torch_fft(assert_close_like_cpu: Check) -> None:
    def transforms(x: torch.Tensor, real: torch.Tensor) -> Any:
        fft = torch.fft
        return (
            fft.fft(x, n=7),
            fft.ifft(x, n=3, dim=0),
            fft.fft2(x),
            fft.ifft2(x, dim=(0, 2)),
            fft.fftn(x),
            fft.ifftn(x, s=(2, 8), dim=(1, 2)),
            fft.rfft(real),
            fft.irfft(x),
            fft.rfft2(real),
            fft.irfft2(x, s=(4, 7)),
            fft.rfftn(real),
            fft.irfftn(x, s=(4, 5, 6)),
            fft.hfft(x),
            fft.ihfft(real),
            fft.hfft2(x),
            fft.ihfft2(real),
            fft.hfftn(x),
            fft.ihfftn(real),
            fft.fftshift(x, dim=1),
            fft.ifftshift(real),
            fft.fft(real),
        )

    x, real = _numbers(4, 5, 6).requires_grad_(), _numbers(4, 5, 6, dtype=torch.float32)
    assert_close_like_cpu(transforms, x, real.requires_grad_(), eager=False, rtol=1e-4, atol=1e-4)


def test_eager_gradients(assert_close_like_cpu: Check) -> None:
    def transforms(x: torch.Tensor) -> Any:
        return torch.fft.rfft(x.real), torch.fft.irfft(x, 9), torch.fft.fft2(x)

    assert_close_like_cpu(
        transforms, _numbers(3, 5).requires_grad_(), compiled=False, rtol=1e-4, atol=1e-4
    )


def test_views(assert_close_like_cpu: Check) -> None:
    def transforms(x: torch.Tensor) -> Any:
        return (
            torch.fft.fft(x.t()),
            torch.fft.fft(x[:, ::2], dim=0),
            torch.fft.fft(x.conj()),
            torch.fft.rfft(x.real),
            torch.fft.fft(x.expand(2, -1, -1), dim=0),
        )

    assert_close_like_cpu(transforms, _numbers(6, 8), rtol=1e-5, atol=1e-5)


def test_spectrograms(assert_close_like_cpu: Check) -> None:
    def there_and_back(x: torch.Tensor) -> Any:
        window = torch.hann_window(16, device=x.device)
        spectrum = torch.stft(x, 16, hop_length=4, window=window, return_complex=True)
        return spectrum, torch.istft(spectrum, 16, hop_length=4, window=window, length=x.shape[-1])

    x = _numbers(2, 100, dtype=torch.float32)
    assert_close_like_cpu(there_and_back, x, rtol=1e-4, atol=1e-4)


def test_convolution_by_spectra(assert_close_like_cpu: Check) -> None:
    def convolve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x, 64) * torch.fft.rfft(y, 64), 64)

    x = _numbers(3, 40, dtype=torch.float32).requires_grad_()
    y = _numbers(24, dtype=torch.float32).requires_grad_()
    assert_close_like_cpu(convolve, x, y, rtol=1e-4, atol=1e-4)


def test_batches_that_vary(vk: torch.device) -> None:
    compiled = torch.compile(torch.fft.fft, backend="torchvk", dynamic=True)
    for rows, length in ((2, 8), (5, 8), (3, 12), (0, 8)):
        x = _numbers(rows, length)
        expected = torch.fft.fft(x) if rows else x
        torch.testing.assert_close(compiled(x.to(vk)).cpu(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(torch.fft.fft(x.to(vk)).cpu(), expected, rtol=1e-5, atol=1e-5)


def test_infinities_and_nan_spread(vk: torch.device) -> None:
    x = _numbers(3, 8)
    x[0, 3], x[1, 2] = torch.nan, torch.inf
    actual = torch.fft.fft(x.to(vk)).cpu()
    assert not torch.isfinite(actual[:2].abs()).any()
    assert torch.isfinite(actual[2].abs()).all()
