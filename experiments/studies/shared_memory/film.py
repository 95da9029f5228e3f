"""watch.html: workers that change weights in shared memory, and their conflicts.

The policies are those of experiments/single/hogwild.py. The weights are an object that
records each read and each write, both of which take virtual time:

    worker 0   read w, gradient,  change: read w ─► add ─► write w
    worker 1              read w, gradient, change: read w ─► add ─► write w
                          a conflict            lost if the writes of both cross
"""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lab.watching import Recording
import numpy as np

from dml import sim
from dml.figures.player import State
from dml.types import Interval, Message, Timeline
from dml.wire.comm.tags import Tag

POLICIES = ("lock-free", "locked", "round robin", "CYCLADES")
WEIGHTS, EXAMPLES, NONZEROS, BLOCK, SEED = 60, 80, 3, 10, 0
# Seconds of a read or a write of the weights of an example, and of a look at memory.
# A gradient takes GRADIENT times a number between 0.5 and 1.5.
ACCESS, GRADIENT, LOOK = 1e-7, 1e-6, 1e-7
TEXTS = (
    "not in use",
    "in use by a worker",
    "by two or more: a conflict",
    "a lost change",
)
PALETTE = ("#b9c0c7", "#6f9bd1", "#e0b84c", "#c8321e")
LOST = 3
COLOURS = {"read": "#6f9bd1", "change": "#8f6fb8", "wait": "#d9773f"}


class Memory:
    """Weights in memory that workers share, and the record of reads and writes.

    A worker uses weights from the first read of an example to its write. A write
    overwrites the changes since the read before it: these are lost.

    Args:
      workers: Number of workers.
      recording: Receives the states of the weights.
    """

    def __init__(self, workers: int, recording: Recording):
        self.workers, self.recording = workers, recording
        self.w = np.zeros(WEIGHTS)
        self.writes = np.zeros(WEIGHTS, int)  # by weight
        self.users: Counter[int] = Counter()  # by weight: workers that use it
        self.lost = self.conflicts = 0
        self.phases: list[Interval] = []
        self.messages: list[Message] = []
        self.states = [State(workers, 0.0, [0] * WEIGHTS)]
        self.taken = [0]  # number of tickets
        self.turn = np.zeros(1, int)

    def show(self, time: float, lost: Any = ()) -> None:
        """Record the states of all weights."""
        values = [min(2, self.users[k]) for k in range(WEIGHTS)]
        for k in lost:
            values[k] = LOST
        self.states.append(State(self.workers, time, values))


class Weights:
    """The weights as a worker sees them, and what `hogwild.share` returns besides."""

    def __init__(self, memory: Memory, comm: Any):
        self.memory, self.comm = memory, comm
        self.draws = np.random.default_rng((SEED, comm.rank))
        # A computation that a message may end lets ranks at earlier times run first.
        self.never = comm.Irecv(np.empty(0), comm.rank, Tag.FIRST)
        self.known = np.zeros(WEIGHTS, int)  # numbers of writes at the last read
        self.reads, self.last = 0, Interval(comm.rank, "", 0.0, 0.0)  # last phase

    def spend(self, name: str, seconds: float) -> tuple[float, float]:
        """Compute; record the phase, and return its start and end."""
        start = self.comm.Wtime()
        self.comm.platform.compute(seconds, self.never)
        end, phases = self.comm.Wtime(), self.memory.phases
        if self.last.name == name == "wait" and self.last.end == start:
            phases.remove(self.last)  # one phase for several looks
            start = self.last.start
        self.last = Interval(self.comm.rank, name, start, end)
        phases.append(self.last)
        return start, end

    def __getitem__(self, features: np.ndarray) -> np.ndarray:
        """Read weights; the first read of an example is for its gradient."""
        memory, rank, first = self.memory, self.comm.rank, self.reads % 2 == 0
        self.reads += 1
        start, end = self.spend("read" if first else "change", ACCESS)
        memory.messages.append(
            Message(memory.workers, rank, 0, 8 * len(features), start, end)
        )
        values = memory.w[features]
        self.known[features] = memory.writes[features]
        if first:
            memory.conflicts += any(memory.users[k] for k in features)
            memory.users.update(features.tolist())
            memory.show(end)
            self.spend("gradient", GRADIENT * self.draws.uniform(0.5, 1.5))
        return values

    def __setitem__(self, features: np.ndarray, values: np.ndarray) -> None:
        memory = self.memory
        start, end = self.spend("change", ACCESS)
        memory.messages.append(
            Message(self.comm.rank, memory.workers, 0, 8 * len(features), start, end)
        )
        lost = features[memory.writes[features] > self.known[features]]
        memory.lost += len(lost)
        memory.w[features] = values
        memory.writes[features] += 1
        memory.users.subtract(features.tolist())
        memory.show(end, lost)


def program(comm: Any, policy: str, memory: Memory, visits: list[Any]) -> None:
    """Visit the examples of a worker by a policy of the single file."""
    from single import hogwild

    weights = Weights(memory, comm)

    def next_ticket() -> int:
        memory.taken[0] += 1
        return memory.taken[0] - 1

    own_memory = SimpleNamespace(
        w=weights,
        hits=np.zeros(WEIGHTS),
        turn=memory.turn,
        next_ticket=next_ticket,
        pause=lambda: weights.spend("wait", LOOK),
    )
    for first in range(0, EXAMPLES, BLOCK):
        block = range(first, first + BLOCK)
        own = block[comm.rank :: comm.size]
        if policy == "CYCLADES":
            comm.Barrier()
            own = hogwild.components(visits, block, comm.size)[comm.rank]
        for t in own:
            hogwild.POLICIES[policy](own_memory, t, visits[t])
    weights.never.Cancel()


def draw_example(number: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return features, their values and the label of an example."""
    draws = np.random.default_rng(number)
    features = draws.choice(WEIGHTS, NONZEROS, replace=False)
    values = draws.standard_normal(NONZEROS)
    return features, values, float(np.sign(values @ np.cos(features)))


def write(path: Path, policy: str, workers: int) -> dict[str, int]:
    """Visit each example once and write the page; return conflicts and lost changes.

    Args:
      path: Path of the page.
      policy: One of POLICIES.
      workers: Number of workers.
    """
    recording = Recording(workers + 1)  # and the memory
    memory = Memory(workers, recording)
    visits = [draw_example(number) for number in range(EXAMPLES)]
    sim.run(lambda comm: program(comm, policy, memory, visits), workers)
    recording.states = memory.states
    counts = {"conflicts": memory.conflicts, "lost": memory.lost}
    recording.write(
        path,
        f"{policy}, {workers} workers",
        f"{EXAMPLES} examples of {NONZEROS} features and {WEIGHTS} weights w in shared "
        "memory, recorded from a run of experiments/single/hogwild.py. Workers read "
        f"weights, compute a gradient and change the weights. {counts['conflicts']} "
        f"reads are of weights that another worker uses; {counts['lost']} changes are "
        "overwritten and lost.",
        Timeline(
            sorted(memory.phases, key=lambda one: one.start),
            sorted(memory.messages, key=lambda one: one.sent),
        ),
        levels=dict(enumerate(TEXTS)),
        palette=PALETTE,
        colours=COLOURS,
        names=[*map(str, range(workers)), "w"],
        centre=workers,
    )
    return counts
