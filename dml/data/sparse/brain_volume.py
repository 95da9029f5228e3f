"""Segmentation graphs of the MNI brain volume (ICBM 152, 2009).

The three labels are background, grey matter and white matter. The data are NIfTI files
in a wheel: intensities, and the probabilities of grey and white matter per point.
"""

import gzip
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import IO

import numpy as np

from dml.data.archives import Source, cached_path, download_wheel
from dml.data.sparse.graphs import WeightedGraph, label_costs, picture_graph
from dml.types import BadInput

CLASSES = ("background", "grey matter", "white matter")
# standard deviation relative to the largest intensity, as in the noisiest scans of
# BrainWeb (Collins 1998)
NOISE = 0.09
UINT8_CODE = 2  # of the data type in NIfTI files


def volume(
    slices: int = 8, every: int = 2, smoothness: float = 1.0, seed: int = 0
) -> WeightedGraph:
    """Return the segmentation graph of the middle slices of the volume.

    The true class of a point is its most probable class. The cost of a class is the
    negative log-likelihood of the intensity under the normal distribution of the class.
    The volume is the mean of 152 scans; added normal noise simulates the noise of one
    scan.

    Args:
      slices: Number of slices.
      every: Stride between points on all three axes.
      smoothness: Weight of the edges between points.
      seed: Random seed of the noise.
    """
    intensity, grey, white = maps()
    depth = intensity.shape[2]
    if min(slices, every) < 1 or max(slices, 2) * every > depth:
        raise BadInput(
            f"expected slices and a stride of 1 or more with max(slices, 2) * every <= "
            f"{depth}, got {slices=} and {every=}; pass smaller values"
        )
    start = (depth - slices * every) // 2
    # the axis of slices comes first, so that the points of a slice are contiguous
    scan, grey, white = (
        np.moveaxis(array, 2, 0)[start::every, ::every, ::every][:slices].astype(
            np.float32
        )
        for array in (intensity, grey, white)
    )
    probabilities = np.stack([255 - grey - white, grey, white])  # times 255
    truth = probabilities.argmax(axis=0).astype(np.int8).ravel()
    noise = np.random.default_rng(seed).standard_normal((scan.size, 1))
    picture = scan.reshape(-1, 1) / 255 + NOISE * noise.astype(np.float32)
    costs_NxK = label_costs(picture, truth, len(CLASSES))
    graph = picture_graph(picture, scan.shape, costs_NxK, smoothness)
    return graph._replace(truth=truth, names=CLASSES)


def maps() -> list[np.ndarray]:
    """Return T1 intensities and the probabilities of grey and white matter.

    The arrays are uint8, 197x233x189; 255 is the largest intensity and probability 1.
    """
    path = cached_path("images/mni152.txt", SOURCES)
    try:
        return [nifti(b64decode(line)) for line in path.read_bytes().splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise BadInput(
            f"expected NIfTI volumes in {path}, got {error}; delete the file to "
            "download it again"
        ) from None


def nifti(compressed: bytes) -> np.ndarray:
    """Return the uint8 values of a gzipped NIfTI-1 file, with axes x, y, z."""
    raw = gzip.decompress(compressed)
    dtype = np.frombuffer(raw, "<i2", 1, 70)[0]
    shape = np.frombuffer(raw, "<i2", 3, 42)
    if dtype != UINT8_CODE:
        raise ValueError(f"a volume of data type {dtype}, not {UINT8_CODE} (uint8)")
    offset = int(np.frombuffer(raw, "<f4", 1, 108)[0])
    points = np.frombuffer(raw, np.uint8, int(np.prod(shape, dtype=np.int64)), offset)
    return points.reshape(shape, order="F")


def lines(file: IO[bytes]) -> Iterator[str]:
    """Yield a binary member as one line of base64, because cached files are text."""
    yield b64encode(file.read()).decode() + "\n"


SOURCES = (
    Source(
        download_wheel,
        "nilearn==0.14.1",
        [
            f"nilearn/datasets/data/mni_icbm152_{image}_tal_nlin_sym_09a_converted.nii.gz"
            for image in ("t1", "gm", "wm")
        ],
        lines,
        "725206484e9fb3f6691f9c2d20204a068759d5072f12055324702ee0cb2bbe8a",
    ),
)
