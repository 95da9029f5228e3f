"""The values of text flags: names, numbers, sizes in bytes."""

import math
import os
import re
from collections.abc import Iterable

from lab.shared_flags import MAX_SIZE, SEEDS, FlagValues
import numpy as np

from dml import extend
from dml.types import BadInput


def names(value: str, table: Iterable[str], flag: str, group: str = "") -> list[str]:
    """Return the names of a flag's comma-separated value; `all` is all of the table.

    Args:
        value: value of the flag.
        table: known names.
        flag: name of the flag.
        group: group of entry points, whose names and FILE.py:NAME are accepted, too.
    """
    known = list(table)
    chosen: list[str] = []
    for name in value.split(","):
        chosen += known if name == "all" else [name]
    for name in chosen:
        if group and name not in known and extend.is_known(name, {}, group):
            extend.find(name, {}, group)
        elif name not in known:
            others = ", all, or FILE.py:NAME" if group else " or all"
            raise BadInput(
                f"expected --{flag} of {', '.join(known)}{others}, got {name!r}; "
                "correct the name"
            )
    return list(dict.fromkeys(chosen)) if "all" in value.split(",") else chosen


def positive(value: str, flag: str) -> int:
    """Return a whole number above 0."""
    if not value.isdecimal() or len(value) > 18 or not int(value):
        raise BadInput(
            f"expected whole numbers from 1 to 10^18 in --{flag}, got {value!r:.40}; "
            "correct it"
        )
    return int(value)


def integers(values: FlagValues, flag: str, empty: bool = False) -> list[int]:
    """Return the whole numbers above 0 of a comma-separated flag, or none if empty."""
    text = values[flag].value
    return [] if empty and not text else [positive(n, flag) for n in text.split(",")]


def seeds(values: FlagValues) -> range:
    """Return the seeds --seed, --seed + 1, … of --seeds repetitions."""
    first, count = values.seed, values.seeds
    if first + count > SEEDS:
        raise BadInput(
            f"expected seeds below {SEEDS}, got --seeds={count} from --seed={first}; "
            "pass a smaller --seed"
        )
    return range(first, first + count)


def shard_ranks(values: FlagValues, shards: int) -> list[int]:
    """Return the numbers of virtual ranks of --ranks, each with a logical shard."""
    ranks = integers(values, "ranks")
    if max(ranks) > shards:
        raise BadInput(
            f"expected at most {shards} virtual ranks, one for each logical shard, got "
            f"--ranks={values.ranks}; pass --ranks=1,2,4,8"
        )
    return ranks


def numbers(values: FlagValues, flag: str, maximum: float = math.inf) -> list[float]:
    """Return the numbers of a comma-separated flag, each from 0 to `maximum`."""
    text = values[flag].value
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(0 <= number <= maximum and number < math.inf for number in numbers):
        bounds = "upwards" if maximum == math.inf else f"to {maximum:g}"
        raise BadInput(
            f"expected numbers from 0 {bounds} in --{flag}, got {text!r}; correct it"
        )
    return numbers


def whole_numbers(values: FlagValues, flag: str) -> list[int]:
    """Return the whole numbers of a comma-separated flag, each from 0 to MAX_SIZE."""
    found = numbers(values, flag, MAX_SIZE)
    if not all(number.is_integer() for number in found):
        raise BadInput(
            f"expected whole numbers from 0 to {MAX_SIZE} in --{flag}, got "
            f"{values[flag].value!r}; correct it"
        )
    return list(map(int, found))


def positive_numbers(values: FlagValues, flag: str) -> list[float]:
    """Return the numbers above 0 of a comma-separated flag."""
    found = numbers(values, flag)
    if 0 in found:
        text = values[flag].value
        raise BadInput(
            f"expected numbers above 0 in --{flag}, got {text!r}; correct it"
        )
    return found


def nbytes(value: str) -> int:
    """Return the bytes of a size such as 4KB; a KB is 1024 bytes."""
    units = {"B": 0, "KB": 10, "MB": 20, "GB": 30}
    match = re.fullmatch(r"(\d{1,15})([A-Z]+)", value)
    if not match or match[2] not in units:
        raise BadInput(
            f"expected a size such as 4KB, 256KB or 4MB, got {value!r:.40}; use a "
            f"whole number and one of {', '.join(units)}"
        )
    return int(match[1]) << units[match[2]]


def element_counts(sizes: str, dtype: np.dtype) -> list[int]:
    """Return the numbers of elements of comma-separated sizes in bytes."""
    sizes_in_bytes = [nbytes(size) for size in sizes.split(",")]
    for size in sizes_in_bytes:
        if size % dtype.itemsize:
            raise BadInput(
                f"expected a multiple of {dtype.itemsize} bytes (one {dtype}), got "
                f"{size}B; correct --sizes"
            )
    return [size // dtype.itemsize for size in sizes_in_bytes]


def check_memory(nbytes: int, size: int) -> None:
    """Raise BadInput if `size` ranks need more memory than the host has.

    Args:
      nbytes: Bytes per rank.
      size: Number of ranks.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes * size > memory:
        raise BadInput(
            f"expected at most {memory / 2**30:.0f} GB of memory in use, got {size} "
            f"ranks of {nbytes / 2**30:.2f} GB; pass smaller --sizes or fewer ranks"
        )
