"""Strips of pictures of an episode."""

import numpy as np
import pytest

from dml.figures import episodes


@pytest.mark.parametrize("total, count", [(501, 8), (10, 8), (3, 8), (1, 8)])
def test_frames_have_equal_distances_from_the_first_to_the_last(total, count):
    steps = episodes.chosen_steps(total, count)
    assert steps[0] == 0 and steps[-1] == total - 1
    assert len(steps) == min(total, count)
    distances = np.diff(steps)
    assert total == 1 or distances.max() - distances.min() <= 1


def test_a_strip_is_written_as_png_and_svg(tmp_path):
    frames = np.random.default_rng(0).integers(0, 255, (5, 8, 6, 3), np.uint8)
    episodes.draw(tmp_path / "episode", frames, title="an episode")
    assert (tmp_path / "episode.png").stat().st_size > 1000
    assert (tmp_path / "episode.svg").exists()
