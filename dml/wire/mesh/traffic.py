"""Collectives of a compiled program, read from its text (compiled.as_text()).

    while body, 12 iterations:  %x = f32[2,512]{1,0} all-gather-start(...), groups of 4
                           → all-gather, 4096 bytes gathered, 4 devices, 12 times

A loop has the number of iterations in XLA's text, or 1 if that is not known. All
branches count as taken. Transfers by other means, such as custom calls, do not count.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

# Bytes that a device sends in a ring of t devices, for a collective of n bytes
# (`Collective.nbytes`).
WIRE = {
    "all-reduce": lambda n, t: 2 * n * (t - 1) / t,
    "all-gather": lambda n, t: n * (t - 1) / t,
    "reduce-scatter": lambda n, t: n * (t - 1) / t,
    "all-to-all": lambda n, t: n * (t - 1) / t,
    "collective-permute": lambda n, t: n,  # of devices with a destination
}
# n from the r bytes in the type of an instruction, which is that of its results. The
# type of a -start instruction also contains the operands (STARTED).
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
CONTEXT = re.compile(r"\bu32\[\]")  # in the type of a -start, not an operand
HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")
CALL = re.compile(
    r"(?:condition|body|to_apply|calls|\w+_computations?)=(\{[^}]*\}|%?[\w.\-]+)"
)
ITERATIONS = re.compile(r'"?known_trip_count"?:\{"n":"(\d+)"\}')
PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
COUNTED = re.compile(r"replica_groups=\[\d+,(\d+)\]<=")
# since jax 0.12: sizes of all axes of a mesh, and the axes of a group; a part of an
# axis is 'name':(size of the parts before it)size
AXES = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")
AXIS = re.compile(r"'([^']*)'(?:=(\d+)|:\(\d+\)(\d+))?")
ALL_DEVICES = re.compile(r"replica_groups=\{\}")
DEVICES = re.compile(r"num_partitions=(\d+)")
OP_NAME = re.compile(r'op_name="([^"]*)"')


class Collective(NamedTuple):
    """A collective instruction of a compiled program."""

    kind: str  # key of WIRE
    nbytes: int  # bytes reduced, permuted or gathered; of a scatter, of its operand
    size: int  # devices of a group; of a permutation, devices that send
    times: int  # executions in one run of the program
    op_name: str  # XLA's op_name of the calling function


def ring_bytes(collective: Collective) -> float:
    """Return the bytes that a device sends per execution, with a ring."""
    return WIRE[collective.kind](collective.nbytes, collective.size)


def collectives(text: str) -> list[Collective]:
    """List a compiled program's collectives."""
    partitions = DEVICES.search(text)
    devices = int(partitions[1]) if partitions else 1
    entries = []
    counts = executions(text)
    for computation, line in instructions(text):
        match = COLLECTIVE.search(line)
        if match:
            kind, size = match[2], group_size(line, devices)
            arrays = CONTEXT.sub("", match[1]) if match[3] else match[1]
            formula = STARTED if match[3] else BYTES
            op_name = OP_NAME.search(line)
            entries.append(
                Collective(
                    kind,
                    formula[kind](nbytes(arrays), size),
                    size,
                    counts.get(computation, 1),
                    op_name[1] if op_name else "",
                )
            )
    return entries


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (computation, instruction) for every instruction."""
    computation = ""
    for line in text.splitlines():
        head = HEAD.match(line)
        if head and not line.startswith("HloModule"):
            computation = head[2]
        elif " = " in line:
            yield computation, line


def executions(text: str) -> dict[str, int]:
    """Return the number of executions of each called computation."""
    callers: dict[str, list[tuple[str, int]]] = {}
    for computation, line in instructions(text):
        iterations = ITERATIONS.search(line)
        for names in CALL.findall(line):
            for name in names.strip("{}").replace("%", "").split(","):
                edge = computation, int(iterations[1]) if iterations else 1
                callers.setdefault(name.strip(), []).append(edge)

    counts: dict[str, int] = {}

    def count(name: str) -> int:
        if name not in counts:
            edges = callers.get(name, [])
            calls = sum(count(caller) * times for caller, times in edges)
            counts[name] = calls or 1
        return counts[name]

    return {name: count(name) for name in callers}


def group_size(line: str, devices: int) -> int:
    """Return the number of participating devices of an instruction."""
    pairs = PAIRS.search(line)
    if pairs:
        return pairs[1].count("{")
    listed, counted, axes = (find.search(line) for find in (LISTED, COUNTED, AXES))
    if listed:
        return listed[1].count(",") + 1
    if axes:
        sizes = {name: int(size) for name, size, _ in AXIS.findall(axes[1])}
        group = AXIS.findall(axes[2])
        return math.prod(int(part or sizes[name]) for name, _, part in group)
    if not counted and "replica_groups=" in line and not ALL_DEVICES.search(line):
        groups = line[line.index("replica_groups=") :][:80]
        raise ValueError(
            f"expected groups of devices as of jax 0.10 to 0.12, got {groups}"
        )
    return int(counted[1]) if counted else devices


def nbytes(arrays: str) -> int:
    """Return the bytes of all arrays in a type such as (f32[2,3]{1,0}, pred[])."""
    total = 0
    for name, bits, sizes in ARRAY.findall(arrays):
        element_bits = 8 if name == "pred" else int(bits)
        length = math.prod(map(int, filter(None, sizes.split(","))))
        total += -(-element_bits * length // 8)
    return total
