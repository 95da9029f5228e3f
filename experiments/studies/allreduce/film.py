"""watch.html: one collective on virtual ranks, played message by message."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from lab.watching import Recording
import numpy as np

from dml import sim
from dml.figures import player
from dml.sim.networks.named import network
from dml.sim.networks.uniform import Uniform
from dml.types import BadInput
from dml.wire.collectives.table import COLLECTIVES
from dml.wire.comm.filmed import Filmed, Tape
from dml.wire.plans.topology import chunks

MOST = 64  # ranks: a word has a bit for each
WORDS = 32  # least number of chunks of a buffer
PIECES = 16  # of a buffer, in algorithms that send pieces one after another
TREES = ("double_tree", "chain", "circulant")
PIECED = {
    "allreduce": ("segmented_ring", "double_tree"),
    "broadcast": TREES,
    "reduce": TREES,
    "scan": ("chain",),
    "exclusive_scan": ("chain",),
}
REDUCING = ("allreduce", "reduce_scatter", "reduce", "scan", "exclusive_scan")


def parse(text: str, size: int) -> tuple[str, str]:
    """Return collective and algorithm of text such as swing or broadcast:chain."""
    if not 2 <= size <= MOST:
        raise BadInput(
            f"expected 2 to {MOST} virtual ranks, got {size}; pass --simulate=8"
        )
    head, _, tail = text.rpartition(":")
    collective = head or "allreduce"
    if collective not in COLLECTIVES:
        raise BadInput(
            f"expected a collective of {', '.join(COLLECTIVES)}, got {collective!r}; "
            "pass for instance broadcast:chain"
        )
    table = COLLECTIVES[collective]
    names = [name for name, one in table.items() if one.schedule]
    if tail not in names:
        raise BadInput(
            f"expected an algorithm of {', '.join(names)} that sends messages, got "
            f"{tail!r}; pass one of them"
        )
    return collective, tail


def write(path: Path, text: str, size: int, links: str, nbytes: int) -> int:
    """Record an algorithm on virtual ranks and write its page; return its messages.

    Args:
      path: Path of the page.
      text: Name for `parse`.
      size: Number of ranks.
      links: Text of the network.
      nbytes: Bytes of a buffer.
    """
    collective, name = parse(text, size)
    words = size * max(1, -(-WORDS // size))
    tape, recording = Tape(), Recording(size)
    call = COLLECTIVES[collective][name].function
    scale = nbytes / (8 * words)

    def program(comm: Any) -> None:
        buffer = contents(collective, comm.rank, comm.size, words)
        filmed = recording.wrap(comm, partial(Filmed, tape=tape, buffer=buffer))
        filmed.snapshot()
        call(filmed, buffer, **arguments(call, name, collective, words))
        filmed.snapshot()

    fabric = network(links, size)
    sim.run(program, size, scaled(fabric, scale))
    timeline = recording.timeline()
    messages = [
        one._replace(nbytes=round(one.nbytes * scale)) for one in timeline.messages
    ]
    states = [player.State(*snapshot) for snapshot in tape.snapshots]
    spread = "" if collective == "allreduce" else f"{collective} by "
    film = player.Film(
        f"{spread}{name}, {size} ranks",
        f"{nbytes:,} bytes on {size} virtual ranks, recorded from a run of the code. "
        "A strip is the buffer of a rank: the darker a chunk, the more ranks have "
        "contributed to it.",
        size,
        timeline._replace(messages=messages),
        states,
        tape.contents(list(timeline.messages)),
        network=fabric,
    )
    player.write(path, film)
    return len(messages)


def contents(collective: str, rank: int, size: int, words: int) -> np.ndarray:
    """Return the buffer of a rank before the collective: its bit in what it has."""
    buffer = np.zeros(words, np.uint64)
    has = slice(None)
    if collective == "all_gather":
        has = chunks(words, size)[rank]
    if collective != "broadcast" or rank == 0:
        buffer[has] = np.uint64(1) << np.uint64(rank)
    return buffer


def arguments(
    call: Callable[..., Any], name: str, collective: str, words: int
) -> dict[str, Any]:
    """Return the reduction, and the bytes of a piece of algorithms with pieces."""
    made: dict[str, Any] = {}
    if collective in REDUCING:
        made["op"] = np.bitwise_or
    if name in PIECED.get(collective, ()) and "segment" in signature(call).parameters:
        made["segment"] = 8 * max(1, words // PIECES)
    return made


def scaled(links: Any, scale: float) -> Any:
    """Return a network on which a byte takes the time of `scale` bytes."""
    if isinstance(links, Uniform):
        return links._replace(
            beta=links.beta * scale,
            gamma=links.gamma * scale,
            eager=int(links.eager / scale),
        )
    rates = links.rates
    changed = rates._replace(
        beta=rates.beta * scale,
        gamma=rates.gamma * scale,
        link=rates.link * scale,
        eager=int(rates.eager / scale),
    )
    made = links._replace(rates=changed)
    if "inside" in links._fields:
        alpha, beta = links.inside
        made = made._replace(inside=(alpha, beta * scale))
    return made
