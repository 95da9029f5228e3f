"""Pictures and what they were cut into."""

import numpy as np
import pytest
from matplotlib import image

from dml.figures.segments import draw, shades, slices
from dml.types import BadInput

WRONG, RIGHT = "#cc3311", "#e8e8e8"


def drawn(path, *args):
    """Return the pixels of a figure as hexadecimal colours."""
    draw(path, *args)
    rgb = (image.imread(f"{path}.png")[..., :3] * 255).round().astype(np.uint8)
    return np.array([f"#{pixel.tobytes().hex()}" for pixel in rgb.reshape(-1, 3)])


def test_a_volume_is_drawn_in_its_labels_colours_with_errors(tmp_path):
    rng = np.random.default_rng(0)
    shape, truth = (1, 6, 7), rng.integers(0, 3, 42).astype(np.int8)
    labels = truth.astype(int)
    labels[:20] = 0
    truth[-3:] = -1
    names = ("nothing", "a $grey$ thing", "white")
    pixels = drawn(tmp_path / "one", shape, rng.random((42, 1)), labels, truth, names)
    assert {*shades(3), WRONG, RIGHT} <= set(pixels)
    red, light = (np.count_nonzero(pixels == shade) for shade in (WRONG, RIGHT))
    wrong = (labels != truth)[:-3].mean()  # the key adds some red
    assert red / (red + light) == pytest.approx(wrong, abs=0.1)


def test_a_picture_is_drawn_in_its_colours_without_a_truth(tmp_path):
    picture = np.tile(np.float32([[0.2, 0.4, 0.6], [1, 0, 1]]), (6, 1))
    seen = set(drawn(tmp_path / "one", (3, 4), picture, np.arange(12) % 2))
    assert {"#336699", "#ff00ff"} <= seen and WRONG not in seen


def test_slices_are_spread_over_a_volume():
    values = np.arange(9.0).repeat(6)[:, None]
    found = slices((9, 2, 3), values)
    assert found.shape == (3, 2, 3)
    np.testing.assert_array_equal(found[:, 0, 0], [2, 4, 6])
    assert slices((2, 2, 3), np.zeros((12, 3))).shape == (2, 2, 3, 3)
    assert slices((3, 4), np.zeros(12)).shape == (1, 3, 4)


@pytest.mark.parametrize("shape", [(), (12,), (3, 5), (1, 1, 3, 4)])
def test_what_is_no_picture_is_one_line(tmp_path, shape):
    with pytest.raises(BadInput, match="2 axes or a volume of 3, got .* of 12 labels"):
        draw(tmp_path / "one", shape, np.zeros((12, 1)), np.zeros(12, int))
