"""Handwritten digits of scikit-learn: 1797 images of 8 by 8 pixels, 10 classes.

Part of scikit-learn, so no download is needed. The file is read without an import of
scikit-learn, which takes a second on each rank.
"""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dml.types import Batch

FEATURES = 64
CLASSES = 10
FILE = "datasets/data/digits.csv.gz"  # rows: the pixels of an image, and its class
HELD_OUT = 360  # number of examples, a fifth of all


def digits() -> tuple[Batch, Batch]:
    """Return batches of 1437 training and 360 held-out examples; the split is fixed."""
    package = find_spec("sklearn")
    assert package and package.origin, "scikit-learn is a requirement of dml"
    with gzip.open(Path(package.origin).parent / FILE, "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    images = (rows[:, :-1] / 16).astype(np.float32)  # grey levels are 0 to 16
    targets = rows[:, -1].astype(np.int32)
    # The file is ordered by writer: without shuffling, training and held-out examples
    # would have different writers.
    order = np.random.default_rng(0).permutation(len(targets))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    return (
        Batch(images[training], targets[training]),
        Batch(images[held_out], targets[held_out]),
    )
