"""Images to train on: MNIST and CIFAR-10 in their original files, scikit-learn's digits, or synthetic ones.

In: a directory, or nothing. Out: `Images`, four CPU tensors with the name of what they are.
Forbidden: calling synthetic images by another name; trusting a file before its size and labels were checked.

CIFAR-10's formats (Krizhevsky, 2009): *binary*, 10,000 records a file, each one label byte and 3 x 32 x 32 bytes;
*python*, a pickled dictionary with ``data`` (an array of 10,000 x 3072 bytes) and ``labels``.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchvk_compile.demo import digits
from torchvk_compile.errors import CorruptDataError, UsageError

_CIFAR_SHAPE = (3, 32, 32)
_CIFAR_BYTES = 3 * 32 * 32
_TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEST_BATCH = "test_batch"
_CIFAR_DIRECTORIES = ("", "cifar-10-batches-py", "cifar-10-batches-bin")
_CLASSES = 10
_SYNTHETIC_SEED = 0
_TEST_SHARE = 1 / 3
_SYNTHETIC_DIGITS = 6_000


@dataclass(frozen=True)
class Images:
    """Images as float32 in [0, 1], shape (n, ...), and labels as int64, shape (n,); `name` says which they are."""

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """The four tensors by name."""
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return {name: getattr(self, name) for name in names}

    def first(self, train: int | None, test: int | None) -> Images:
        """At most so many training and test images; None keeps all."""
        return Images(
            self.name,
            self.train_images[:train],
            self.train_labels[:train],
            self.test_images[:test],
            self.test_labels[:test],
        )


def load_mnist(directory: Path | None) -> Images:
    """MNIST from `directory` if it has MNIST's files, else scikit-learn's digits, else synthetic images.

    Raises UsageError and CorruptDataError as `demo.digits.load` does.
    """
    chosen = directory if directory is not None and _holds(directory, "t10k-*") else None
    if chosen is None and importlib.util.find_spec("sklearn") is None:
        return _flat(synthetic(_SYNTHETIC_DIGITS))
    data = digits.load(chosen)
    return Images(
        data.name, data.train_images, data.train_labels, data.test_images, data.test_labels
    )


def _flat(images: Images) -> Images:
    """Images as rows of one colour, by another name."""
    name = images.name.replace("CIFAR-10", "MNIST; scikit-learn's digits are not installed")
    rows = (part[:, 0].flatten(1) for part in (images.train_images, images.test_images))
    train, test = rows
    return Images(name, train, images.train_labels, test, images.test_labels)


def load_cifar10(directory: Path | None, synthetic_images: int) -> Images:
    """CIFAR-10 from `directory` if it has its files, else `synthetic_images` synthetic ones.

    Raises:
        UsageError: when some of CIFAR-10's files are there and others missing.
        CorruptDataError: when a file does not hold what its format promises.
    """
    found = None if directory is None else _cifar_directory(directory)
    if found is None:
        return synthetic(synthetic_images)
    missing = [n for n in (*_TRAIN_BATCHES, _TEST_BATCH) if _cifar_file(found, n) is None]
    if missing:
        raise UsageError(f"--data {directory}: CIFAR-10 is incomplete, missing {missing[0]}[.bin]")
    train = [_cifar_batch(found, name) for name in _TRAIN_BATCHES]
    images, labels = (torch.cat(parts) for parts in zip(*train))
    return Images("CIFAR-10", images, labels, *_cifar_batch(found, _TEST_BATCH))


def check_directory(directory: Path) -> None:
    """Raise UsageError unless `directory` exists and holds MNIST or CIFAR-10."""
    if not directory.is_dir():
        raise UsageError(f"--data {directory}: there is no such directory")
    if not _holds(directory, "t10k-*") and _cifar_directory(directory) is None:
        raise UsageError(
            f"--data {directory}: neither MNIST (t10k-images-idx3-ubyte[.gz], ...) nor CIFAR-10 "
            "(data_batch_1[.bin], ...; cifar-10-batches-py, cifar-10-batches-bin) is there"
        )


def check_enough(images: Images, batch: int) -> None:
    """Raise UsageError unless there is a batch to train on and an image to test with."""
    train, test = len(images.train_labels), len(images.test_labels)
    if train < batch or test == 0:
        raise UsageError(
            f"{images.name}: {train} training and {test} test images are too few; a batch has {batch}"
        )


def synthetic(count: int) -> Images:
    """Images of ten kinds of coloured waves in noise, 3 x 32 x 32; no photographs, and so named.

    They exercise the same kernels as CIFAR-10. Accuracies on them say that training works, not how good a model is.
    """
    generator = torch.Generator().manual_seed(_SYNTHETIC_SEED)
    labels = torch.arange(count) % _CLASSES
    places = torch.linspace(0, 1, _CIFAR_SHAPE[1])
    waves = torch.rand(_CLASSES, 3, 3, generator=generator)
    frequency = 2 + 6 * waves[:, :, 0, None, None]
    angle = torch.pi * waves[:, :, 1, None, None]
    along = places[None, None, :, None] * angle.cos() + places[None, None, None, :] * angle.sin()
    phase = 2 * torch.pi * torch.rand(count, 1, 1, 1, generator=generator)
    kinds = (2 * torch.pi * frequency * along)[labels]
    noise = torch.randn(count, *_CIFAR_SHAPE, generator=generator)
    images = (0.5 + 0.25 * torch.sin(kinds + phase) + 0.15 * noise).clamp(0, 1)
    order = torch.randperm(count, generator=generator)
    images, labels = images[order], labels[order]
    test = round(count * _TEST_SHARE)
    name = f"synthetic, {count} images (not CIFAR-10)"
    return Images(name, images[test:], labels[test:], images[:test], labels[:test])


def _holds(directory: Path, pattern: str) -> bool:
    return any(directory.glob(pattern))


def _cifar_directory(directory: Path) -> Path | None:
    places = [directory / name for name in _CIFAR_DIRECTORIES]
    return next((p for p in places if _holds(p, "data_batch_*") or _holds(p, "test_batch*")), None)


def _cifar_file(directory: Path, name: str) -> Path | None:
    candidates = (directory / name, directory / f"{name}.bin")
    return next((path for path in candidates if path.is_file()), None)


def _cifar_batch(directory: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    path = _cifar_file(directory, name)
    assert path is not None
    read = _binary_batch if path.suffix == ".bin" else _pickled_batch
    pixels, labels = read(path)
    if len(labels) != len(pixels) or len(labels) == 0:
        raise CorruptDataError(f"{path} has {len(pixels)} images and {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= _CLASSES:
        raise CorruptDataError(f"{path} has labels beyond 0 to 9")
    images = pixels.reshape(-1, *_CIFAR_SHAPE).astype(np.float32) / 255
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def _binary_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    data = np.fromfile(path, np.uint8)
    record = _CIFAR_BYTES + 1
    if len(data) == 0 or len(data) % record:
        raise CorruptDataError(f"{path}: {len(data)} bytes are not records of {record} bytes")
    records = data.reshape(-1, record)
    return records[:, 1:], records[:, 0]


def _pickled_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        content = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise CorruptDataError(f"{path} is not a batch of CIFAR-10: {error}") from None
    if not isinstance(content, Mapping):
        raise CorruptDataError(f"{path} is not a batch of CIFAR-10: no dictionary")
    pixels = content.get(b"data")
    labels = content.get(b"labels")
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (_CIFAR_BYTES,)
        or not isinstance(labels, Sequence)
    ):
        raise CorruptDataError(f"{path} is not a batch of CIFAR-10: no data of n x {_CIFAR_BYTES}")
    return pixels, _whole_numbers(path, labels)


def _whole_numbers(path: Path, labels: Sequence[Any]) -> np.ndarray:
    try:
        numbers = np.asarray(labels)
    except ValueError:  # lists of several lengths
        numbers = np.empty(0)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise CorruptDataError(
            f"{path} is not a batch of CIFAR-10: its labels are no whole numbers"
        )
    return numbers


class _PlainUnpickler(pickle.Unpickler):
    """Reads arrays and nothing else: a pickle may otherwise run any code."""

    _ALLOWED = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no image data")
        if module.startswith("numpy.core"):
            module = module.replace("numpy.core", "numpy._core", 1)
        return super().find_class(module, name)
