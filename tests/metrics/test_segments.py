"""Pictures of what was cut."""

import numpy as np
import pytest

from dml.metrics import segments
from dml.types import BadInput


@pytest.mark.parametrize("shape, channels", [((5, 4, 6), 1), ((6, 7), 3)])
def test_a_picture_is_drawn_with_its_labels_and_the_same_each_time(
    shape, channels, tmp_path
):
    rng = np.random.default_rng(0)
    nodes = int(np.prod(shape))
    picture = rng.random((nodes, channels), np.float32)
    truth, labels = rng.integers(0, 3, nodes), rng.integers(0, 3, nodes)
    truth[0] = -1
    for name in ("one", "same"):
        segments.draw(
            tmp_path / name, shape, picture, labels, truth, ("sky", "ground", "water")
        )
    assert (tmp_path / "one.png").stat().st_size > 3000
    one = (tmp_path / "one.svg").read_text()
    assert one == (tmp_path / "same.svg").read_text()
    for word in ("sky", "errors", "the truth"):
        assert f"<!-- {word} -->" in one
    labels[:] = 0
    segments.draw(tmp_path / "other", shape, picture, labels)
    assert "<!-- errors -->" not in (tmp_path / "other.svg").read_text()


def test_labels_are_told_apart_by_their_lightness():
    def light(shade):
        parts = [int(shade[k : k + 2], 16) for k in (1, 3, 5)]
        return np.dot(parts, (0.2126, 0.7152, 0.0722))

    for count in range(2, 7):
        lights = [light(shade) for shade in segments.shaded(count)]
        assert (np.diff(lights) > 10).all()


def test_a_graph_without_a_shape_is_not_drawn(tmp_path):
    with pytest.raises(BadInput, match="expected a picture of 2 axes"):
        segments.draw(tmp_path / "x", (), np.zeros((4, 1)), np.zeros(4, int))
