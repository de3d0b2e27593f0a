"""The demo's data: IDX files as they are found in the wild, and broken ones."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from torchvk_compile.demo import digits
from torchvk_compile.errors import CorruptDataError, UsageError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_part(directory: Path, part: str, count: int, *, suffix: str = "", dot: str = "-") -> None:
    images = (np.arange(count * 4 * 3) % 256).astype(np.uint8).reshape(count, 4, 3)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for kind, array in ((f"images{dot}idx3", images), (f"labels{dot}idx1", labels)):
        data = gzip.compress(idx(array)) if suffix else idx(array)
        (directory / f"{part}-{kind}-ubyte{suffix}").write_bytes(data)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("dot", ["-", "."])
def test_test_files_alone_are_split_four_to_one(tmp_path: Path, suffix: str, dot: str) -> None:
    write_part(tmp_path, "t10k", 50, suffix=suffix, dot=dot)
    data = digits.load(tmp_path)
    assert data.train_images.shape == (40, 12)
    assert data.test_images.shape == (10, 12)
    assert data.train_images.dtype == torch.float32
    assert data.train_labels.tolist() == [i % 10 for i in range(40)]
    assert data.train_images[0, 11].item() == pytest.approx(11 / 255)


def test_train_files_are_used_when_there(tmp_path: Path) -> None:
    write_part(tmp_path, "t10k", 20)
    write_part(tmp_path, "train", 30)
    data = digits.load(tmp_path)
    assert (len(data.train_labels), len(data.test_labels)) == (30, 20)


def test_default_is_real_digits() -> None:
    pytest.importorskip("sklearn")
    data = digits.load(None)
    assert len(data.train_labels) + len(data.test_labels) == 1797
    assert 0 <= data.train_images.min() < data.train_images.max() <= 1
    assert set(data.test_labels.tolist()) == set(range(10))


def test_missing_directory_and_files_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        digits.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no MNIST files"):
        digits.load(tmp_path)
    write_part(tmp_path, "t10k", 5)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UsageError, match="both its images and its labels"):
        digits.load(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not an IDX file"),
        (lambda data: data[:9], "not an IDX file"),
        (lambda data: b"\0\0\x0d" + data[3:], "not an IDX file"),
        (lambda data: idx(np.zeros((5, 0, 3), np.uint8)), "without a pixel"),
        (lambda data: data[:-1], "promises 60 bytes .5 x 4 x 3. but holds 59"),
        (lambda data: data + b"\0", "holds 61"),
        (lambda data: struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 9), "promises"),
        (lambda data: gzip.compress(data)[:-9], "damaged gzip"),
        (lambda data: gzip.compress(data)[:20] + b"\xff" * 30, "damaged gzip"),
    ],
)
def test_corrupt_images_are_named(tmp_path: Path, damage, message: str) -> None:
    write_part(tmp_path, "t10k", 5)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptDataError, match=message) as caught:
        digits.load(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_images_to_split_are_refused(tmp_path: Path, count: int) -> None:
    write_part(tmp_path, "t10k", count)
    with pytest.raises(UsageError, match=f"{count} images are too few"):
        digits.load(tmp_path)


def test_inconsistent_files_are_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "t10k", 5)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    labels.write_bytes(idx(np.zeros(4, np.uint8)))
    with pytest.raises(CorruptDataError, match=r"5 images.*4 labels"):
        digits.load(tmp_path)
    labels.write_bytes(idx(np.full(5, 10, np.uint8)))
    with pytest.raises(CorruptDataError, match="label 10"):
        digits.load(tmp_path)
