"""Figures of segmentations of a picture, or of slices of a volume.

Each slice has a row: the input, the true labels (if known), the labels of the cut, and
the errors.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dml.figures import style as figures
from dml.types import BadInput

MAX_SLICES = 3  # evenly spaced in the volume
# colours of labels by lightness; distinct in grey and for the colour-blind
COLOURS = ("#222255", "#4477aa", "#44aa99", "#88ccdd", "#eedd88", "#ffffff")
WRONG, CORRECT, UNKNOWN = "#cc3311", "#e8e8e8", "#ffffff"  # colours of errors
SIDE_INCHES = 2.6  # longer side of a picture


def draw(
    path: Path,
    shape: Sequence[int],
    picture_NxC: np.ndarray,
    labels: np.ndarray,
    truth: np.ndarray | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write path.svg and path.png; slices are taken along the first axis of a volume.

    Nodes are the elements of the picture or volume in C order.

    Args:
      path: Path of the figure, without suffix.
      shape: Shape of the picture or volume.
      picture_NxC: One value per node, drawn in grey, or three RGB values from 0 to 1.
      labels: Label of each node.
      truth: True label of each node, negative if unknown; None: all are unknown.
      names: Names of the labels; by default their numbers.
    """
    if len(shape) not in (2, 3) or np.prod(shape) != len(labels):
        raise BadInput(
            f"expected a picture of 2 axes or a volume of 3, got {tuple(shape)} of "
            f"{len(labels)} labels; draw only graphs that have a shape"
        )
    lines = {"input": picture_NxC, "true labels": truth, "labels of the cut": labels}
    if truth is not None:
        wrong = np.where(labels == truth, 0, 1)
        lines["errors"] = np.where(truth < 0, 2, wrong)
    columns = {
        title: slices(shape, values)
        for title, values in lines.items()
        if values is not None
    }
    count = int(max(labels.max(), -1 if truth is None else truth.max())) + 1
    _figure(path, columns, names or [str(label) for label in range(count)])


def shades(count: int) -> list[str]:
    """Return `count` colours, from the darkest to the lightest."""
    places = np.linspace(0, len(COLOURS) - 1, count).astype(int)
    return [COLOURS[place] for place in places]


def slices(shape: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Return evenly spaced slices of the values: SxHxW or SxHxWx3."""
    volume = values.reshape(*shape, *values.shape[1:])
    volume = volume if len(shape) == 3 else volume[None]
    if volume.ndim == 4 and volume.shape[3] == 1:
        volume = volume[..., 0]
    places = np.linspace(0, len(volume) - 1, min(MAX_SLICES, len(volume)) + 2)[1:-1]
    return volume[places.round().astype(int)]


def _figure(
    path: Path, columns: Mapping[str, np.ndarray], names: Sequence[str]
) -> None:
    """Draw a column per title, a row per slice, and a legend of the colours."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = shades(len(names))
    first = columns["input"]
    height, width = first.shape[1:3]
    side = SIDE_INCHES / max(height, width)
    size = (width * side * len(columns) + 0.2, height * side * len(first) + 0.7)
    image_styles = {
        "input": {"cmap": "gray", "vmin": first.min(), "vmax": first.max()},
        "errors": {
            "cmap": ListedColormap([CORRECT, WRONG, UNKNOWN]),
            "vmin": 0,
            "vmax": 2,
        },
    }
    labels = {"cmap": ListedColormap(colours), "vmin": 0, "vmax": len(names) - 1}
    handles = [
        Patch(facecolor=colour, edgecolor="#777777", label=figures.legible(name))
        for colour, name in zip(colours, names, strict=True)
    ]
    if "errors" in columns:
        handles.append(Patch(facecolor=WRONG, label="wrong"))
    with figures.figure(path, size, figures.PICTURE) as figure:
        grid = figure.subplots(len(first), len(columns), squeeze=False)
        for column, (title, images) in enumerate(columns.items()):
            for row, image in enumerate(images):
                axes = grid[row, column]
                axes.imshow(
                    image, interpolation="nearest", **image_styles.get(title, labels)
                )
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
            grid[0, column].set_title(title, fontsize=9)
        place = {"loc": "outside lower center", "ncols": len(handles)}
        figure.legend(handles=handles, **place)
