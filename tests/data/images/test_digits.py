import numpy as np

from dml.data.images.digits import CLASSES, FEATURES, digits


def test_digits_are_split_once_and_for_all():
    training, held_out = digits()
    assert training.inputs.shape == (1437, FEATURES)
    assert held_out.inputs.shape == (360, FEATURES)
    assert np.array_equal(digits()[1].targets, held_out.targets)
    # the file's sums: nothing is lost or counted twice by the split
    whole = np.concatenate([training.inputs, held_out.inputs]) * 16
    assert whole.sum(dtype=np.float64) == 561_718
    assert training.targets.sum() + held_out.targets.sum() == 8_070


def test_digits_are_float32_in_0_to_1_with_int32_targets_of_all_classes():
    for part in digits():
        assert part.inputs.dtype == np.float32
        assert part.targets.dtype == np.int32
        assert (part.inputs.min(), part.inputs.max()) == (0, 1)
        assert set(part.targets) == set(range(CLASSES))
