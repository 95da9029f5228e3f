"""The cells of a sweep by its flags; a cell is the ranks and the flags of one run.

--lr=0.1,0.2             two values
--delays='"0,1,4","0"'   two values, quoted as in a file of CSV
--lr=@rates.txt          a value a line
--lr=1e-3..1:log         with --random: a draw of the range, even in the logarithm
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from dml.types import BadInput

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
RANGE = re.compile(rf"({NUMBER})\.\.({NUMBER})(:log)?")
SHOWN, LONGEST = 24, 180  # characters of a value and of all flags, in a name


class Cell(NamedTuple):
    """The ranks and flags of a run; without ranks it runs without MPI."""

    ranks: int | None
    flags: dict[str, str]


def values(flag: str, text: str) -> list[str]:
    """Return the distinct values of a flag, at least one."""
    try:
        if text.startswith("@"):
            found = [line for line in Path(text[1:]).read_text().splitlines() if line]
        else:
            rows = csv.reader(io.StringIO(text, newline=""), strict=True)
            found = [value for row in rows for value in row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"expected values in --{flag}={text}, got {error}; pass a,b or "
            "'\"a,b\",c', or @file with a value a line"
        ) from error
    if not found:
        raise BadInput(
            f"expected values in --{flag}={text}, got none, which makes an empty grid; "
            f"pass --{flag}=<a,b>, or --{flag}='\"\"' for an empty one"
        )
    return list(dict.fromkeys(found))


def swept(
    argv: Sequence[str], known: Mapping[str, bool], script: str
) -> dict[str, list[str]]:
    """Return the values of each flag; known: whether each flag is a switch."""
    found: dict[str, list[str]] = {}
    for argument in argv:
        flag, equals, text = argument.removeprefix("--").partition("=")
        if not equals and flag.startswith("no") and known.get(flag[2:]):
            flag, equals, text = flag[2:], "=", "false"
        if not equals and known.get(flag):
            equals, text = "=", "true"
        if not argument.startswith("--") or (flag in known and not equals):
            raise BadInput(f"expected --flag=values, got {argument!r}; fix it")
        if flag not in known:
            near = get_close_matches(flag, known, 1)
            hint = f"did you mean --{near[0]}?" if near else "its --help lists them"
            raise BadInput(f"expected a flag of {script}, got --{flag}; {hint}")
        if flag in found:
            raise BadInput(f"expected --{flag} once, got it twice; pass --{flag}=a,b")
        found[flag] = values(flag, text)
    return found


def seeds(flags: Mapping[str, list[str]], repeat: int) -> list[str]:
    """Return a seed for each repetition of a cell, or the given ones."""
    given = flags.get("seed", ["0"])
    if repeat == 1:
        return given
    if len(given) > 1 or not given[0].isdecimal():
        raise BadInput(
            f"expected --seed=<the first> beside --repeat={repeat}, got "
            f"--seed={','.join(given)}; leave one of them out"
        )
    return [str(int(given[0]) + k) for k in range(repeat)]


def counts(text: str) -> list[int]:
    """Return the numbers of ranks in --n."""
    found = values("n", text)
    for value in found:
        if not value.isdecimal() or not int(value):
            raise BadInput(
                f"expected numbers of ranks in --n, got {value!r}; pass --n=1,2,4 "
                "(a script's own --n comes after --)"
            )
    return [int(value) for value in found]


def grid(ranks: Sequence[int | None], flags: Mapping[str, list[str]]) -> list[Cell]:
    """Return every combination, the last flag running fastest."""
    for flag, choices in flags.items():
        refuse_ranges(flag, choices, "pass --random=<draws> with it")
    return [
        Cell(size, dict(zip(flags, chosen, strict=True)))
        for size, *chosen in product(ranks, *flags.values())
    ]


def drawn(
    ranks: Sequence[int | None], flags: Mapping[str, list[str]], draws: int, seed: int
) -> list[Cell]:
    """Return random cells; the first ones do not depend on the number of draws."""
    draw_of = {flag: drawing(flag, choices) for flag, choices in flags.items()}
    return [
        Cell(
            Random(f"{seed} {draw}").choice(ranks),
            {k: of(Random(f"{seed} {draw} {k}")) for k, of in draw_of.items()},
        )
        for draw in range(draws)
    ]


def drawing(flag: str, choices: Sequence[str]) -> Callable[[Random], str]:
    """Return a function that draws a value of a range or of a list.

    Values of a range are whole numbers if both its ends are.
    """
    found = RANGE.fullmatch(choices[0])
    if len(choices) > 1 or not found:
        refuse_ranges(flag, choices, "pass it alone")
        return lambda random: random.choice(choices)
    logarithmic, ends = bool(found[3]), found.group(1, 2)
    whole = all(re.fullmatch(r"[-+]?\d+", end) for end in ends)
    low, high = map(float, ends)
    if low > high or (logarithmic and low <= 0):
        raise BadInput(
            f"expected low..high{', above 0 for its log' if logarithmic else ''}, got "
            f"--{flag}={choices[0]}; fix the range"
        )
    top = high + 1 if whole else high  # each whole number k has [k, k + 1)

    def draw(random: Random) -> str:
        if logarithmic:
            value = math.exp(random.uniform(math.log(low), math.log(top)))
        else:
            value = random.uniform(low, top)
        if whole:
            return str(min(max(math.floor(value), int(low)), int(high)))
        return repr(min(max(float(f"{value:.6g}"), low), high))

    return draw


def refuse_ranges(flag: str, choices: Sequence[str], todo: str) -> None:
    for value in choices:
        if RANGE.fullmatch(value):
            raise BadInput(
                f"expected values in --{flag}, got the range {value}; {todo}"
            )


def drawable(cells: Sequence[Cell], x: str | None) -> None:
    """Raise BadInput if the flag of the axis x has values that are no numbers."""
    flag = (x or "").removeprefix("--")
    for value in (cell.flags[flag] for cell in cells if flag in cell.flags):
        try:
            float(value)
        except ValueError as error:
            raise BadInput(
                f"expected numbers in --x={x}, got {value!r}; pass --by={x}, and "
                "another --x"
            ) from error


def labels(cells: Sequence[Cell]) -> list[str]:
    """Return a label for each cell: the flags that differ between cells."""
    every = [{"n": str(cell.ranks)} | cell.flags for cell in cells]
    differ = [k for k in every[0] if len({values[k] for values in every}) > 1]
    return [
        " ".join(f"{k}={values[k][:SHOWN]}".replace("\n", " ") for k in differ) or "run"
        for values in every
    ]


def name(script: str, cell: Cell) -> str:
    """Return the name of a cell's folder: its flags, cut, and a hash of all of them.

    The name depends on the cell alone, so a larger grid finds the runs that are done.
    """
    flags = sorted(cell.flags.items(), key=lambda item: (item[0] == "seed", item))
    ranks = [] if cell.ranks is None else [("n", str(cell.ranks))]
    words = (
        f"{k}={re.sub(r'[^A-Za-z0-9.+-]+', '_', v)[:SHOWN]}" for k, v in ranks + flags
    )
    every = json.dumps([Path(script).name, cell.ranks, flags])
    digest = hashlib.sha256(every.encode()).hexdigest()[:10]
    return f"{','.join(words)[:LONGEST]}-{digest}"
