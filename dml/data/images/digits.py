"""BATCH: scikit-learn's embedded handwritten digits: 1797 images of 8 by 8, 10 classes.

Nothing in, (training, held out) batches out, without a download.
"""

import numpy as np

from dml.types import Batch

FEATURES = 64
CLASSES = 10
HELD_OUT = 360  # a fifth


def digits() -> tuple[Batch, Batch]:
    """Return 1437 training and 360 held-out examples, always the same ones."""
    from sklearn.datasets import load_digits

    images, targets = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)  # grey levels are 0 to 16
    targets = targets.astype(np.int32)
    # the file is ordered by writer: a split without shuffling tests on other hands
    order = np.random.default_rng(0).permutation(len(targets))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    return (
        Batch(images[training], targets[training]),
        Batch(images[held_out], targets[held_out]),
    )
