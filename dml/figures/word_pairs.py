"""PCA plots of word pairs, one panel per relation.

The axes of a panel are the first two principal components of the normalised vectors of
its words. An arrow joins the words of a pair; if the vectors represent the relation,
arrows are parallel.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dml.figures import style as figures

GROUPS = {
    "country → capital": "france paris, germany berlin, italy rome, russia moscow, "
    "japan tokyo, england london, greece athens, egypt cairo, china beijing, "
    "spain madrid, turkey ankara, iraq baghdad, iran tehran, canada ottawa, "
    "poland warsaw, austria vienna, cuba havana, lebanon beirut, syria damascus",
    "man → woman": "man woman, he she, his her, father mother, son daughter, "
    "brother sister, king queen, men women, husband wife, boy girl, uncle aunt, "
    "boys girls, sons daughters, prince princess, actor actress, male female",
    "singular → plural": "car cars, year years, day days, child children, "
    "computer computers, city cities, country countries, game games, book books, "
    "problem problems, system systems, language languages, animal animals",
    "present → past": "go went, take took, say said, make made, see saw, find found, "
    "come came, write wrote, give gave, begin began, know knew, run ran, play played",
    "adjective → comparative": "good better, bad worse, high higher, large larger, "
    "small smaller, low lower, great greater, old older, strong stronger, long longer",
    "country → language": "france french, germany german, italy italian, "
    "russia russian, japan japanese, england english, greece greek, china chinese",
}
MAX_PANELS = 4
MAX_PAIRS, MIN_PAIRS = 9, 3  # in a panel
FALLBACK_WORDS = 40  # number of words drawn if no relation has MIN_PAIRS pairs
# Candidate positions of a label: offset from its point to the right and up, in points,
# and the part of the label at that offset: left (0), middle (0.5) or right (1), and
# bottom (0), middle (0.5) or top (1).
LABEL_OFFSETS = [
    (4, 0, 0.0, 0.5),
    (-4, 0, 1.0, 0.5),
    (0, 4, 0.5, 0.0),
    (0, -4, 0.5, 1.0),
    (3, 3, 0.0, 0.0),
    (-3, 3, 1.0, 0.0),
    (3, -3, 0.0, 1.0),
    (-3, -3, 1.0, 1.0),
    (9, 8, 0.0, 0.0),
    (-9, 8, 1.0, 0.0),
    (9, -8, 0.0, 1.0),
    (-9, -8, 1.0, 1.0),
]
Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels


def pca_plot(path: Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """Write path.svg and path.png: up to MAX_PANELS relations between words.

    If no relation has MIN_PAIRS pairs in the vocabulary, the most frequent words are
    drawn.

    Args:
      path: Path of the figure, without suffix.
      words: The vocabulary, by descending frequency.
      vectors: Vector of each word.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    groups = relations(words) or {
        "most frequent": np.arange(len(words))[:FALLBACK_WORDS]
    }
    columns = min(len(groups), 2)
    rows = -(-len(groups) // columns)
    size = (6.4 * columns, 4.8 * rows)
    with figures.drawing(path, rows, columns, size=size) as (figure, panels):
        FigureCanvasAgg(figure)  # one canvas to measure all labels
        for axes in panels[len(groups) :]:
            axes.remove()
        positions = {title: plane(vectors[index]) for title, index in groups.items()}
        for axes, (title, index) in zip(panels, groups.items(), strict=False):
            scatter(axes, title, positions[title], paired=index.ndim == 2)
        figure.draw_without_rendering()  # labels need the final positions of the panels
        figure.set_layout_engine("none")  # keep these positions
        for axes, (title, index) in zip(panels, groups.items(), strict=False):
            names = [words[row] for row in index.T.ravel()]
            label(axes, names, positions[title], paired=index.ndim == 2)


def relations(words: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the rows of pairs in the vocabulary, Px2, by title of the relation.

    Only the first MAX_PANELS relations with at least MIN_PAIRS pairs are returned.
    """
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word.lower(), row)
    groups = {}
    for title, text in GROUPS.items():
        pairs = [pair.split() for pair in text.split(", ")]
        index = [[rows[a], rows[b]] for a, b in pairs if a in rows and b in rows]
        if len(index) >= MIN_PAIRS:
            groups[title] = np.array(sorted(index, key=max)[:MAX_PAIRS])
    return dict(list(groups.items())[:MAX_PANELS])


def plane(vectors: np.ndarray) -> np.ndarray:
    """Project vectors, NxD or Px2xD, to two principal components, Nx2.

    For P pairs, rows are all first words, then all second words. The sign of each
    component is chosen so that the mean offset of pairs, or without pairs the largest
    coordinate, is positive.
    """
    units = vectors.astype(np.float64)
    units /= np.maximum(np.linalg.norm(units, axis=-1, keepdims=True), 1e-12)
    flat_NxD = np.concatenate(list(units.swapaxes(0, 1))) if units.ndim == 3 else units
    centred_NxD = flat_NxD - flat_NxD.mean(axis=0)
    _, _, axes_KxD = np.linalg.svd(centred_NxD, full_matrices=False)
    points_Nx2 = np.zeros((len(flat_NxD), 2))
    points_Nx2[:, : len(axes_KxD[:2])] = centred_NxD @ axes_KxD[:2].T
    if units.ndim == 3:
        half = len(flat_NxD) // 2
        offset = (points_Nx2[half:] - points_Nx2[:half]).sum(axis=0)
    else:
        offset = points_Nx2[np.abs(points_Nx2).argmax(axis=0), [0, 1]]
    return points_Nx2 * np.where(offset < 0, -1, 1)


def scatter(axes: Any, title: str, positions: np.ndarray, paired: bool) -> None:
    """Draw a panel without its labels.

    Args:
      axes: The panel.
      title: Title of the panel.
      positions: Positions of the words, Nx2: all first words, then all second words.
      paired: Whether words are pairs, joined by arrows.
    """
    half = len(positions) // 2 if paired else len(positions)
    arrow = {
        "arrowstyle": "-|>",
        "color": "gray",
        "alpha": 0.6,
        "linewidth": 0.8,
        "mutation_scale": 8,
        "shrinkA": 2.5,
        "shrinkB": 2.5,
    }
    for start, end in zip(positions[:half], positions[half:], strict=False):
        axes.annotate("", end, start, arrowprops=arrow)
    for index, points in enumerate((positions[:half], positions[half:])):
        axes.scatter(*points.T, s=14, color=f"C{index}", zorder=3)
    axes.set(title=title, xlabel="first component", ylabel="second component")
    axes.set_aspect("equal", adjustable="datalim")  # preserves angles
    axes.margins(0.1)


def label(axes: Any, words: Sequence[str], positions: np.ndarray, paired: bool) -> None:
    """Write each word next to its point, where it hides least of other labels.

    Args:
      axes: The panel.
      words: Words in the order of `positions`.
      positions: Positions of the words, as in `scatter`.
      paired: Whether words are pairs, joined by arrows.
    """
    half = len(words) // 2 if paired else len(words)
    points = axes.transData.transform(positions)  # in pixels
    occupied = [square(point, 4) for point in points]
    for start, end in zip(points[:half], points[half:], strict=False):
        steps = max(int(np.hypot(*(end - start)) / 6), 2)
        occupied += [
            square(point, 1.5) for point in np.linspace(start, end, steps)[1:-1]
        ]
    frame = axes.get_window_extent().extents
    pixels = axes.figure.dpi / 72  # pixels per point of typography
    for index, word in enumerate(words):
        text = axes.annotate(
            word,
            positions[index],
            (0, 0),
            textcoords="offset points",
            fontsize=8,
            color=f"C{int(index >= half)}",
        )
        x0, y0, x1, y1 = text.get_window_extent().extents
        width, height = x1 - x0, y1 - y0
        others = occupied[:index] + occupied[index + 1 :]
        choices = []
        for right, up, from_left, from_bottom in LABEL_OFFSETS:
            left = points[index, 0] + right * pixels - from_left * width
            bottom = points[index, 1] + up * pixels - from_bottom * height
            box = left, bottom, left + width, bottom + height
            hidden_area = sum(overlap(box, other) for other in others)
            hidden_area += width * height - overlap(box, frame)
            choices.append(
                (hidden_area + 2 * (abs(right) + abs(up)), box)
            )  # prefer near
        _, best = min(choices, key=lambda choice: choice[0])
        occupied.append(best)
        text.set_position(((best[0] - x0) / pixels, (best[1] - y0) / pixels))


def square(point: np.ndarray, radius: float) -> Box:
    """Return the square around a point."""
    x, y = map(float, point)
    return x - radius, y - radius, x + radius, y + radius


def overlap(a: Box, b: Box) -> float:
    """Return the area that two boxes share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return max(width, 0.0) * max(height, 0.0)
