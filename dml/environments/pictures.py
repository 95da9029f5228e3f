"""Pictures of states: observations -> pixels.

CartPole: the track, the cart, the pole    Catch, grid world: cells of a board
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from dml.environments import cartpole, catch, grid_world
from dml.types import BadInput

CELL = 16  # pixels of a cell; small images have CELL/2 for each pixel
METRE = 60  # pixels of a metre
WHITE, LINES = (255, 255, 255), (220, 220, 220)
DARK, BLUE, ORANGE, GREEN = (60, 60, 60), (59, 110, 165), (204, 102, 17), (60, 150, 80)
SMALL = 32  # images with sides of at most this number of pixels are magnified

Picture: TypeAlias = np.ndarray  # HxWx3 in uint8


def cartpole_picture(observation: np.ndarray) -> Picture:
    """Return a picture of cart and pole."""
    x, _, angle, _ = observation
    width, height, ground = round(2.2 * cartpole.WIDEST * METRE), 100, 84
    image = np.full((height, width, 3), WHITE, np.float64)
    hinge = np.array([width / 2 + METRE * x, ground - 14.0])
    pole = 2 * cartpole.LENGTH * METRE * np.array([np.sin(angle), -np.cos(angle)])
    edge = cartpole.WIDEST * METRE
    draw_line(image, (width / 2 - edge, ground), (width / 2 + edge, ground), 1, LINES)
    for side in (-1, 1):  # the ends of the track
        end = width / 2 + side * edge
        draw_line(image, (end, ground - 6), (end, ground + 6), 1, LINES)
    draw_line(image, hinge + (-12, 7), hinge + (12, 7), 7, DARK)
    draw_line(image, hinge, hinge + pole, 3, ORANGE)
    draw_line(image, hinge, hinge, 2, BLUE)
    return image.round().astype(np.uint8)


def draw_line(image: np.ndarray, start, end, radius: float, colour) -> None:
    """Blend a line with round ends into an image; points are (x, y)."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    rows, columns = np.indices(image.shape[:2])
    offsets = np.stack([columns, rows], -1) + 0.5 - start
    line = end - start
    along = np.clip(offsets @ line / max(line @ line, 1e-9), 0, 1)
    distances = np.linalg.norm(offsets - along[..., None] * line, axis=-1)
    cover = np.clip(radius + 0.5 - distances, 0, 1)[..., None]
    image += cover * (np.array(colour) - image)


def catch_picture(observation: np.ndarray) -> Picture:
    """Return a picture of the board: the ball and the paddle."""
    board = observation.reshape(catch.ROWS, catch.COLUMNS) > 0
    colours = np.full((*board.shape, 3), WHITE, np.uint8)
    colours[:-1][board[:-1]] = ORANGE
    colours[-1][board[-1]] = BLUE
    return with_cells(colours)


def grid_world_picture(observation: np.ndarray) -> Picture:
    """Return a picture of the grid: walls, goal and agent."""
    marks = np.array([list(row) for row in grid_world.MAP.split()])
    colours = np.full((*marks.shape, 3), WHITE, np.uint8)
    colours[marks == "#"] = DARK
    colours[marks == "G"] = GREEN
    colours[grid_world.cells()[int(observation.argmax())]] = ORANGE
    return with_cells(colours)


def with_cells(colours_HxWx3: np.ndarray) -> Picture:
    """Return a picture of a board with a line around each cell."""
    pixels = colours_HxWx3.repeat(CELL, 0).repeat(CELL, 1)
    pixels[::CELL] = pixels[:, ::CELL] = LINES
    pixels[-1] = pixels[:, -1] = LINES
    return pixels


PICTURES: Mapping[str, Callable[[np.ndarray], Picture]] = {
    "cartpole": cartpole_picture,
    "catch": catch_picture,
    "grid_world": grid_world_picture,
}


def frames(name: str, observations: np.ndarray) -> np.ndarray:
    """Return pictures of observations, TxHxWx3 in uint8.

    Args:
      name: Name of the environment. Other environments than those of PICTURES have
        pictures if their observations are images, of two or three axes.
      observations: Observations of an episode, TxO.
    """
    cartpoles = name.endswith(":CartPole-v1")
    make = PICTURES.get("cartpole" if cartpoles else name)
    if make is None and np.ndim(observations) not in (3, 4):
        raise BadInput(
            f"expected observations with a picture, of {', '.join(PICTURES)} or "
            f"images, got {name} with shape {np.shape(observations)[1:]}; draw "
            "another environment"
        )
    return np.stack([(make or image_picture)(one) for one in observations])


def image_picture(observation: np.ndarray) -> Picture:
    """Return a picture of an image in [0, 1]: the last frame, or the channels."""
    image = np.asarray(observation, float)
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[0] < image.shape[-1]:  # frames first, as in Atari games
        image = image[-1][..., None]
    channels = image.shape[-1]
    if channels != 3:  # channel k of n in the grey level (k + 1)/n
        image = (image * np.arange(1, channels + 1) / channels).max(-1, keepdims=True)
        image = 1 - image if channels > 1 else image
    pixels = np.clip(255 * image, 0, 255).astype(np.uint8)
    pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    scale = CELL // 2 if max(pixels.shape[:2]) <= SMALL else 1
    return pixels.repeat(scale, 0).repeat(scale, 1)
