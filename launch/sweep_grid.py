"""Cells of a sweep. A cell is the number of ranks and the flags of a run.

--lr=0.1,0.2             two values
--delays='"0,1,4","0"'   two values, quoted as in CSV
--lr=@rates.txt          a file with one value per line
--lr=1e-3..1:log         with --random: log-uniform in the range
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
MAX_VALUE = 24  # characters of a value in a folder name
MAX_FLAGS = 180  # characters of all flags in a folder name


class Cell(NamedTuple):
    """Number of ranks (None: without MPI) and flags of a run."""

    ranks: int | None
    flags: dict[str, str]


def parse_values(flag: str, text: str) -> list[str]:
    """Return the distinct values of a flag, at least one."""
    try:
        if text.startswith("@"):
            texts = [line for line in Path(text[1:]).read_text().splitlines() if line]
        else:
            rows = csv.reader(io.StringIO(text, newline=""), strict=True)
            texts = [value for row in rows for value in row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"expected values in --{flag}={text}, got {error}; pass a,b or "
            "'\"a,b\",c', or @file with one value per line"
        ) from error
    if not texts:
        raise BadInput(
            f"expected values in --{flag}={text}, got none; pass --{flag}=<a,b>, or "
            f"--{flag}='\"\"' for an empty value"
        )
    return list(dict.fromkeys(texts))


def parse_flags(
    argv: Sequence[str], script_flags: Mapping[str, bool], script: str
) -> dict[str, list[str]]:
    """Return the values of each flag.

    Args:
      argv: Arguments of the script.
      script_flags: Names of the script's flags; True for boolean flags.
      script: Name of the script, for error messages.
    """
    values: dict[str, list[str]] = {}
    for argument in argv:
        flag, equals, text = argument.removeprefix("--").partition("=")
        if not equals and flag.startswith("no") and script_flags.get(flag[2:]):
            flag, equals, text = flag[2:], "=", "false"
        if not equals and script_flags.get(flag):
            equals, text = "=", "true"
        if not argument.startswith("--") or (flag in script_flags and not equals):
            raise BadInput(
                f"expected --flag=values, got {argument!r}; correct the argument"
            )
        if flag not in script_flags:
            similar = get_close_matches(flag, script_flags, 1)
            hint = (
                f"did you mean --{similar[0]}?" if similar else "its --help lists them"
            )
            raise BadInput(f"expected a flag of {script}, got --{flag}; {hint}")
        if flag in values:
            raise BadInput(f"expected --{flag} once, got it twice; pass --{flag}=a,b")
        values[flag] = parse_values(flag, text)
    return values


def seeds(flags: Mapping[str, list[str]], repeat: int) -> list[str]:
    """Return the seeds of the repetitions of a cell, or the values of --seed."""
    values = flags.get("seed", ["0"])
    if repeat == 1:
        return values
    if len(values) > 1 or not values[0].isdecimal():
        raise BadInput(
            f"expected one integer in --seed with --repeat={repeat}, got "
            f"--seed={','.join(values)}; pass the first seed, or no --repeat"
        )
    return [str(int(values[0]) + k) for k in range(repeat)]


def rank_counts(text: str) -> list[int]:
    """Return the numbers of ranks in --n."""
    texts = parse_values("n", text)
    for value in texts:
        if not value.isdecimal() or not int(value):
            raise BadInput(
                f"expected numbers of ranks in --n, got {value!r}; pass --n=1,2,4 "
                "(the --n of a script comes after --)"
            )
    return [int(value) for value in texts]


def grid(ranks: Sequence[int | None], flags: Mapping[str, list[str]]) -> list[Cell]:
    """Return every combination; the last flag varies fastest."""
    for flag, choices in flags.items():
        refuse_ranges(flag, choices, "add --random=<number of draws>")
    return [
        Cell(size, dict(zip(flags, chosen, strict=True)))
        for size, *chosen in product(ranks, *flags.values())
    ]


def random_cells(
    ranks: Sequence[int | None], flags: Mapping[str, list[str]], draws: int, seed: int
) -> list[Cell]:
    """Return random cells.

    More draws append cells without changing the first ones.

    Args:
      ranks: Numbers of ranks to choose from.
      flags: Values or a range of each flag.
      draws: Number of cells.
      seed: Random seed.
    """
    samplers = {flag: sampler(flag, choices) for flag, choices in flags.items()}
    return [
        Cell(
            Random(f"{seed} {draw}").choice(ranks),
            {
                flag: sample(Random(f"{seed} {draw} {flag}"))
                for flag, sample in samplers.items()
            },
        )
        for draw in range(draws)
    ]


def sampler(flag: str, choices: Sequence[str]) -> Callable[[Random], str]:
    """Return a function that draws a value from a range or from a list.

    The values of a range are integers if both ends are integers.
    """
    limits = RANGE.fullmatch(choices[0])
    if len(choices) > 1 or not limits:
        refuse_ranges(flag, choices, "pass the range as the only value")
        return lambda random: random.choice(choices)
    logarithmic = bool(limits[3])
    ends = limits.group(1, 2)
    integral = all(re.fullmatch(r"[-+]?\d+", end) for end in ends)
    low, high = map(float, ends)
    if low > high or (logarithmic and low <= 0):
        raise BadInput(
            f"expected low..high{', above 0 for its log' if logarithmic else ''}, got "
            f"--{flag}={choices[0]}; correct the range"
        )
    top = high + 1 if integral else high  # integers are rounded down

    def draw(random: Random) -> str:
        if logarithmic:
            value = math.exp(random.uniform(math.log(low), math.log(top)))
        else:
            value = random.uniform(low, top)
        if integral:
            return str(min(max(math.floor(value), int(low)), int(high)))
        return repr(min(max(float(f"{value:.6g}"), low), high))

    return draw


def refuse_ranges(flag: str, choices: Sequence[str], advice: str) -> None:
    """Raise BadInput if a value is a range; `advice` ends the message."""
    for value in choices:
        if RANGE.fullmatch(value):
            raise BadInput(
                f"expected values in --{flag}, got the range {value}; {advice}"
            )


def check_x_axis(cells: Sequence[Cell], x: str | None) -> None:
    """Raise BadInput if the flag x has values that are not numbers."""
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
    all_values = [{"n": str(cell.ranks)} | cell.flags for cell in cells]
    differ = [
        flag
        for flag in all_values[0]
        if len({values[flag] for values in all_values}) > 1
    ]
    return [
        " ".join(
            f"{flag}={values[flag][:MAX_VALUE]}".replace("\n", " ") for flag in differ
        )
        or "run"
        for values in all_values
    ]


def folder_name(script: str, cell: Cell) -> str:
    """Return the folder name of a cell: its shortened flags, and a hash of all flags.

    The name depends only on the cell, so a larger grid reuses finished runs.
    """
    flags = sorted(cell.flags.items(), key=lambda item: (item[0] == "seed", item))
    ranks = [] if cell.ranks is None else [("n", str(cell.ranks))]
    parts = (
        f"{k}={re.sub(r'[^A-Za-z0-9.+-]+', '_', v)[:MAX_VALUE]}"
        for k, v in ranks + flags
    )
    identity = json.dumps([Path(script).name, cell.ranks, flags])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    return f"{','.join(parts)[:MAX_FLAGS]}-{digest}"
