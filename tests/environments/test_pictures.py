"""Pictures of states."""

import numpy as np
import pytest

from dml.environments import grid_world, pictures
from dml.environments.named import ENVIRONMENTS, find
from dml.types import BadInput


def coloured(picture, colour):
    """Return the mean (x, y) of the pixels of a colour, relative to the size."""
    rows, columns = np.nonzero((picture == colour).all(-1))
    height, width = picture.shape[:2]
    return columns.mean() / width, rows.mean() / height


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_environment_has_pictures(name):
    copies = find(name).make(range(5))
    first = pictures.frames(name, copies.reset())
    moved = pictures.frames(name, copies.step(np.ones(5, int)).observations)
    assert first.dtype == np.uint8 and first.shape == moved.shape
    assert first.shape[0] == 5 and first.shape[-1] == 3
    assert (first != moved).any()


def test_cart_and_pole_are_at_their_places():
    left = pictures.cartpole_picture(np.array([-2.0, 0, -0.2, 0], np.float32))
    right = pictures.cartpole_picture(np.array([2.0, 0, 0.2, 0], np.float32))
    (x, y), (pole, top) = (coloured(left, c) for c in (pictures.DARK, pictures.ORANGE))
    assert x < 0.2 and pole < x and top < y
    assert (right[:, ::-1] == left).mean() > 0.99  # a mirror image


def test_ball_and_paddle_are_at_their_places():
    board = np.zeros((10, 5), np.float32)
    board[3, 4] = board[9, 0] = 1
    picture = pictures.catch_picture(board.ravel())
    assert np.allclose(coloured(picture, pictures.ORANGE), (0.9, 0.35), atol=0.02)
    assert np.allclose(coloured(picture, pictures.BLUE), (0.1, 0.95), atol=0.02)


def test_the_agent_of_the_grid_world_is_in_its_cell():
    state = grid_world.cells().index((4, 0))
    picture = pictures.grid_world_picture(np.eye(27)[state])
    at = coloured(picture, pictures.ORANGE)
    assert np.allclose(at, (0.5 / 8, 4.5 / 5), atol=0.02)


def test_images_are_their_own_pictures():
    assert pictures.frames("x", np.zeros((2, 10, 10, 4))).shape == (2, 80, 80, 3)
    assert pictures.frames("x", np.zeros((2, 4, 84, 84))).shape == (2, 84, 84, 3)
    with pytest.raises(BadInput, match="expected observations with a picture"):
        pictures.frames("x", np.zeros((2, 7)))
