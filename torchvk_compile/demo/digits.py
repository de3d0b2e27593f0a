"""The demo's data: handwritten digits, scikit-learn's or MNIST in IDX files.

In: nothing, or a directory. Out: `DigitData`, four CPU tensors.
Forbidden: downloading; trusting a file's header before its size was checked.

IDX (the format of the MNIST distribution): two zero bytes, a type code (8: unsigned byte), the
number of dimensions, each dimension as a big-endian 32-bit integer, then the bytes in C order.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from torchvk_compile.errors import CorruptDataError, UsageError

_UNSIGNED_BYTE = 8
_SPLIT_SEED = 0
_TRAIN_SHARE = 0.8


@dataclass(frozen=True)
class DigitData:
    """Images as float32 rows in [0, 1], shape (n, pixels), and labels as int64, shape (n,)."""

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def load(directory: Path | None) -> DigitData:
    """MNIST from `directory`, or scikit-learn's 1,797 real digits of 8x8 pixels if it is None."""
    return _scikit_learn_digits() if directory is None else _idx_digits(directory)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The unsigned bytes of an IDX file, gzipped or not, as an array of that many dimensions.

    Raises CorruptDataError if the content is anything else.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptDataError(f"{path} is a damaged gzip file: {error}") from None
    header_bytes = 4 + 4 * dimensions
    if data[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)) or len(data) < header_bytes:
        raise CorruptDataError(f"{path} is not an IDX file of {dimensions}-d unsigned bytes")
    shape = struct.unpack(f">{dimensions}I", data[4:header_bytes])
    expected, present = math.prod(shape), len(data) - header_bytes
    if expected != present:
        raise CorruptDataError(
            f"{path} promises {expected} bytes ({' x '.join(map(str, shape))}) but holds {present}"
        )
    return np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape)


def _scikit_learn_digits() -> DigitData:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            "the default data set needs scikit-learn: pip install scikit-learn, or give a "
            "directory with MNIST files: --data DIR"
        ) from None
    digits = load_digits()
    images = torch.from_numpy(digits.data.astype(np.float32) / 16)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    # The file is sorted by writer; a fixed shuffle makes both parts look alike.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(_SPLIT_SEED))
    return _split("scikit-learn digits", images[order], labels[order], _TRAIN_SHARE)


def _idx_digits(directory: Path) -> DigitData:
    if not directory.is_dir():
        raise UsageError(f"--data {directory}: there is no such directory")
    test = _idx_part(directory, "t10k")
    train = _idx_part(directory, "train")
    if test is None:
        raise UsageError(
            f"--data {directory}: no MNIST files there (t10k-images-idx3-ubyte[.gz] and "
            "t10k-labels-idx1-ubyte[.gz], optionally train-...)"
        )
    if train is None:
        return _split("MNIST test files", *test, _TRAIN_SHARE)
    if train[0].shape[1] != test[0].shape[1]:
        raise CorruptDataError(f"{directory}: train and t10k images differ in size")
    return DigitData("MNIST", *train, *test)


def _idx_part(directory: Path, part: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Images and labels of one part ("train" or "t10k"), or None if it has no files."""
    paths = [_idx_file(directory, part, kind) for kind in ("images-idx3", "labels-idx1")]
    if paths[0] is None and paths[1] is None:
        return None
    if paths[0] is None or paths[1] is None:
        raise UsageError(f"--data {directory}: {part} needs both its images and its labels file")
    pixels, labels = read_idx(paths[0], 3), read_idx(paths[1], 1)
    if len(pixels) != len(labels) or len(pixels) == 0:
        raise CorruptDataError(
            f"{paths[0]} has {len(pixels)} images, {paths[1].name} {len(labels)} labels"
        )
    if pixels.size == 0:
        raise CorruptDataError(f"{paths[0]} has images without a pixel")
    if labels.max() > 9:
        raise CorruptDataError(f"{paths[1]} has the label {labels.max()}; digits end at 9")
    images = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float32) / 255)
    return images, torch.from_numpy(labels.astype(np.int64))


def _idx_file(directory: Path, part: str, kind: str) -> Path | None:
    stems = (f"{part}-{kind}-ubyte", f"{part}-{kind.replace('-', '.')}-ubyte")
    candidates = [directory / f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def _split(name: str, images: torch.Tensor, labels: torch.Tensor, share: float) -> DigitData:
    count = round(len(labels) * share)
    if not 0 < count < len(labels):
        raise UsageError(f"{name}: {len(labels)} images are too few to train and to test with")
    return DigitData(name, images[:count], labels[:count], images[count:], labels[count:])
