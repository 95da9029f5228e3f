"""What a compiled program sends: its text (compiled.as_text()) in, its collectives out.

    while body, 12 turns:  %x = f32[2,512]{1,0} all-gather-start(...), groups of 4
                           → all-gather, 4096 bytes joined, 4 devices, 12 times

A loop counts the turns that XLA knows of, else one; every branch counts as taken. What
is sent in other ways, such as by a custom call, is not counted.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# bytes that a device sends by a ring, of t, when n bytes are reduced, joined, ...
WIRE = {
    "all-reduce": lambda n, t: 2 * n * (t - 1) / t,
    "all-gather": lambda n, t: n * (t - 1) / t,
    "reduce-scatter": lambda n, t: n * (t - 1) / t,
    "all-to-all": lambda n, t: n * (t - 1) / t,
    "collective-permute": lambda n, t: n,  # those that have whom to send to
}
# n by the bytes in an instruction's type: its results, and of a -start operands too
BYTES = {
    "all-reduce": lambda r, t: r,
    "all-gather": lambda r, t: r,
    "reduce-scatter": lambda r, t: r * t,
    "all-to-all": lambda r, t: r,
    "collective-permute": lambda r, t: r,
}
STARTED = {
    "all-reduce": lambda r, t: r,
    "all-gather": lambda r, t: r * t // (t + 1),
    "reduce-scatter": lambda r, t: r * t // (t + 1),
    "all-to-all": lambda r, t: r // 2,
    "collective-permute": lambda r, t: r // 2,
}
KINDS = "|".join(WIRE)
COLLECTIVE = re.compile(rf"%?\S+ = (.+?) ({KINDS})(-start)?\(")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
CONTEXT = re.compile(r"\bu32\[\]")  # of a -start: no operand
HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
CALL = re.compile(
    r"(?:condition|body|to_apply|calls|\w+_computations?)=(\{[^}]*\}|%?[\w.\-]+)"
)
TURNS = re.compile(r'"?known_trip_count"?:\{"n":"(\d+)"\}')
PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]<=")
DEVICES = re.compile(r"num_partitions=(\d+)")
OF = re.compile(r'op_name="([^"]*)"')


class Collective(NamedTuple):
    """An instruction by which devices move numbers."""

    kind: str
    nbytes: int  # that are reduced, permuted, joined or before they are scattered
    size: int  # devices of a group; of a permutation: those that send
    times: int  # in one run of the program
    of: str  # XLA's op_name of the calling function


def sent(one: Collective) -> float:
    """Return the bytes that a device sends per execution with a ring."""
    return WIRE[one.kind](one.nbytes, one.size)


def collectives(text: str) -> list[Collective]:
    """List a compiled program's collectives."""
    devices = DEVICES.search(text)
    every = int(devices[1]) if devices else 1
    counts = []
    runs = turns(text)
    for place, line in instructions(text):
        match = COLLECTIVE.search(line)
        if match:
            kind, size = match[2], group(line, every)
            arrays = CONTEXT.sub("", match[1]) if match[3] else match[1]
            formula = STARTED if match[3] else BYTES
            of = OF.search(line)
            counts.append(
                Collective(
                    kind,
                    formula[kind](nbytes(arrays), size),
                    size,
                    runs.get(place, 1),
                    of[1] if of else "",
                )
            )
    return counts


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield every instruction, and the computation that it is part of."""
    place = ""
    for line in text.splitlines():
        head = HEAD.match(line)
        if head and not line.startswith("HloModule"):
            place = head[2]
        elif " = " in line:
            yield place, line


def turns(text: str) -> dict[str, int]:
    """Return the number of executions of each called computation."""
    callers: dict[str, list[tuple[str, int]]] = {}
    for place, line in instructions(text):
        known = TURNS.search(line)
        for names in CALL.findall(line):
            for name in names.strip("{}").replace("%", "").split(","):
                edge = place, int(known[1]) if known else 1
                callers.setdefault(name.strip(), []).append(edge)

    counts: dict[str, int] = {}

    def count(name: str) -> int:
        if name not in counts:
            edges = callers.get(name, [])
            counts[name] = sum(count(place) * times for place, times in edges) or 1
        return counts[name]

    return {name: count(name) for name in callers}


def group(line: str, every: int) -> int:
    """Return the number of participating devices."""
    pairs = PAIRS.search(line)
    if pairs:
        return pairs[1].count("{")
    listed, counted = LISTED.search(line), COUNTED.search(line)
    if listed:
        return listed[1].count(",") + 1
    return int(counted[1]) if counted else every


def nbytes(arrays: str) -> int:
    """Return the bytes of all arrays in a type such as (f32[2,3]{1,0}, pred[])."""
    total = 0
    for name, bits, sizes in ARRAY.findall(arrays):
        wide = 8 if name == "pred" else int(bits)
        total += -(-wide * math.prod(map(int, filter(None, sizes.split(",")))) // 8)
    return total
