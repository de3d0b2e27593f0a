"""Data in its original formats: read right, refused when damaged, never confused with synthetic images."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from torchvk_compile.bench import data, download
from torchvk_compile.errors import CorruptDataError, UsageError

_NAMES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def _records(seed: int, count: int = 7) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
    return pixels, generator.integers(0, 10, count, dtype=np.uint8)


def _write_binary(directory: Path) -> None:
    for seed, name in enumerate(_NAMES):
        pixels, labels = _records(seed)
        (directory / f"{name}.bin").write_bytes(np.hstack([labels[:, None], pixels]).tobytes())


def _write_pickled(directory: Path) -> None:
    for seed, name in enumerate(_NAMES):
        pixels, labels = _records(seed)
        content = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": name.encode()}
        (directory / name).write_bytes(pickle.dumps(content, protocol=2))


def _write_mnist(directory: Path) -> None:
    for part, count in (("train", 30), ("t10k", 12)):
        images = struct.pack(">4I", 0x803, count, 28, 28) + bytes(count * 784)
        labels = struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count))
        (directory / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_both_formats_of_cifar10_hold_the_same_images(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    _write_binary(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "other").mkdir()
    _write_pickled(tmp_path / "other")
    binary, pickled = (data.load_cifar10(d, 0) for d in (tmp_path, tmp_path / "other"))
    assert (binary.name, binary.train_images.shape) == ("CIFAR-10", (35, 3, 32, 32))
    for name, tensor in binary.tensors().items():
        assert torch.equal(tensor, pickled.tensors()[name]), name
    pixels, labels = _records(5)
    assert binary.test_labels.tolist() == labels.tolist()
    assert torch.equal(binary.test_images[3], torch.tensor(pixels[3] / 255).float().view(3, 32, 32))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not records of 3073 bytes"),
        (bytes(3073 + 5), "not records of 3073 bytes"),
        (bytes([17]) + bytes(3072), "labels beyond 0 to 9"),
    ],
)
def test_damaged_binary_batches_are_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    _write_binary(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(CorruptDataError, match=rf"data_batch_3.bin.*{complaint}"):
        data.load_cifar10(tmp_path, 0)


@pytest.mark.parametrize(
    "content",
    [
        b"no pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": np.zeros((2, 5), np.uint8), b"labels": [0, 1]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1, 2]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": ["a", "b"]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1.5]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [[0], [1]]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [[0], [1, 2]]}),
    ],
)
def test_damaged_pickled_batches_are_refused(tmp_path: Path, content: bytes) -> None:
    _write_pickled(tmp_path)
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(CorruptDataError, match="test_batch"):
        data.load_cifar10(tmp_path, 0)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (str(tmp_path / "touched"),)

    _write_pickled(tmp_path)
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(CorruptDataError, match="which is no image data"):
        data.load_cifar10(tmp_path, 0)
    assert not (tmp_path / "touched").exists()


def test_an_incomplete_cifar10_names_what_is_missing(tmp_path: Path) -> None:
    _write_binary(tmp_path)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(UsageError, match=r"missing data_batch_4\[.bin\]"):
        data.load_cifar10(tmp_path, 0)


@pytest.mark.parametrize(("train", "test", "few"), [(63, 5, True), (64, 0, True), (64, 1, False)])
def test_too_few_images_are_refused(train: int, test: int, few: bool) -> None:
    images = data.synthetic(300).first(train, test)
    if few:
        with pytest.raises(
            UsageError, match=f"{train} training and {test} test images are too few"
        ):
            data.check_enough(images, 64)
    else:
        data.check_enough(images, 64)


def test_mnist_is_read_gzipped_or_not(tmp_path: Path) -> None:
    _write_mnist(tmp_path)
    images = data.load_mnist(tmp_path)
    assert (images.name, images.train_images.shape, len(images.test_labels)) == (
        "MNIST",
        (30, 784),
        12,
    )


def test_without_data_the_stand_ins_say_what_they_are(tmp_path: Path) -> None:
    assert "digits" in data.load_mnist(None).name
    _write_mnist(tmp_path)  # MNIST alone is no CIFAR-10
    images = data.load_cifar10(tmp_path, 90)
    assert images.name == "synthetic, 90 images (not CIFAR-10)"
    assert len(images.train_labels) == 60
    assert images.train_images.min() >= 0 and images.train_images.max() <= 1
    again = data.synthetic(90)
    assert torch.equal(images.train_images, again.train_images)


def test_without_scikit_learn_the_stand_in_is_synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    images = data.load_mnist(None)
    assert images.name.startswith("synthetic, 6000 images (not MNIST")
    assert images.train_images.shape == (4000, 1024)


def test_directories_without_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        data.check_directory(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="neither MNIST"):
        data.check_directory(tmp_path)


def test_downloads_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = tmp_path / "published.bin"
    published.write_bytes(b"images")
    target = tmp_path / "data"
    digest = hashlib.md5(b"images").hexdigest()
    monkeypatch.setattr(download, "SOURCES", (download.Source(published.as_uri(), digest),))
    said: list[str] = []
    download.download(target, said.append)
    download.download(target, said.append)
    assert len(said) == 1 and (target / "published.bin").read_bytes() == b"images"
    monkeypatch.setattr(download, "SOURCES", (download.Source(published.as_uri(), "0" * 32),))
    with pytest.raises(CorruptDataError, match="arrived damaged"):
        download.download(target, said.append)
    missing = download.Source((tmp_path / "gone").as_uri(), digest)
    monkeypatch.setattr(download, "SOURCES", (missing,))
    with pytest.raises(UsageError, match="--data DIR"):
        download.download(target, said.append)
