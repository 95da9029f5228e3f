"""A training as data, and its measurement on virtual or real ranks.

    Case(problem, strategy, options, ranks, …) ─ measure ─► Measured of each rank
         └─ steps, on each rank ─► Step ─► Step ─► …

`measure` trains on virtual ranks, or on the ranks of a communicator. Trainings that
differ by their seeds are reduced to one row by `over_seeds`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax

from dml import sim
from dml.evaluation.scores import digest
from dml.metrics.timer import Timer
from dml.problems import Entry, find_problem
from dml.runs.writers import Row
from dml.strategies import strategy
from dml.train import costs, progress
from dml.types import BadInput, Comm, CountedComm, Problem, Step
from dml.wire.comm import Metered
from dml.wire.comm.metered import counted
from dml.wire.comm.plain import as_comm

Evaluate = Callable[[CountedComm, Step], Mapping[str, Any]]


class Case(NamedTuple):
    """A training.

    Attributes:
      problem: The problem with its minibatches, or a name of `dml.problems`.
      strategy: Name of the strategy, or its function.
      options: Options of the strategy, or a function that returns them on each rank.
      update: Update of the parameters; None: the problem's.
      ranks: Number of ranks.
      network: Network of virtual ranks; None: the default one.
      steps: Number of minibatches, or of orders of examples; None: all.
      seed: Random seed of the minibatches.
    """

    problem: Entry | str
    strategy: str | Callable[..., Iterator[Step]]
    options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = {}
    update: Any = None
    ranks: int = 1
    network: Any = None
    steps: int | None = None
    seed: int = 0


class Measured(NamedTuple):
    """The result of a training on one rank.

    Attributes:
      rows: Number, loss, measures, costs and `real_seconds` of each Step; of the last
        one on ranks other than 0.
      evaluation: Measures of the parameters at the end; empty on ranks other than 0.
      words: Number of elements that the rank sent in all Steps.
      bytes: Number of bytes that the rank sent in the training.
      peak_bytes: Largest number of bytes that the rank sent in a Step.
      seconds: Seconds of the training on the clock of the ranks.
      state_bytes: Bytes of the state of the update.
      sha256: Hash of the parameters at the end; empty where they are not collected.
    """

    rows: Sequence[Row]
    evaluation: Mapping[str, Any]
    words: int
    bytes: int
    peak_bytes: int
    seconds: float
    state_bytes: int
    sha256: str


def measure(
    case: Case, comm: Comm | None = None, evaluate: Evaluate | None = None
) -> list[Measured]:
    """Train; return the results of the ranks of this process, by rank.

    Args:
      case: The training.
      comm: Ranks, as many as those of the case; None: new virtual ranks.
      evaluate: (communicator, last Step) -> measures at the end, called on all ranks;
        None: the measures of the problem, on rank 0.
    """
    program = partial(_measure, case, evaluate)
    if comm is None:
        return sim.run(program, case.ranks, case.network)
    if comm.size != case.ranks:
        raise BadInput(
            f"expected {case.ranks} ranks of the case, got {comm.size}; pass "
            f"ranks={comm.size}, or start {case.ranks} processes"
        )
    return [program(comm)]


def _measure(case: Case, evaluate: Evaluate | None, comm: Comm) -> Measured:
    """Train on a rank; return its result."""
    metered = Metered(as_comm(comm))
    problem, taken = _start(case, metered)
    begin, real, words, sent, peak = metered.Wtime(), time.perf_counter(), 0, 0, 0
    last, rows = None, list[Row]()
    for last in taken:
        before, real = real, time.perf_counter()
        row = progress(last) | {"loss": last.loss, **last.measures, **costs(last)}
        if comm.rank:
            rows.clear()
        rows.append(row | {"real_seconds": real - before})
        peak, sent = max(peak, metered.bytes_sent - sent), metered.bytes_sent
        words += last.words_sent
    if last is None:
        raise BadInput("expected at least one step, got none; pass more steps")
    seconds, sent = metered.Wtime() - begin, metered.bytes_sent
    params = last.params()
    if "state_bytes" in last.measures:
        nbytes = int(last.measures["state_bytes"])
    else:
        nbytes = sum(leaf.nbytes for leaf in jax.tree.leaves(last.state()))
    if evaluate:
        evaluation = evaluate(metered, last)
    else:
        evaluation = {} if comm.rank or params is None else problem.evaluate(params)
    sha256 = "" if params is None else digest(params)
    return Measured(rows, evaluation, words, sent, peak, seconds, nbytes, sha256)


def steps(case: Case, comm: Comm) -> Iterator[Step]:
    """Return the Steps of a case on a rank; raise BadInput for what does not fit."""
    return _start(case, counted(as_comm(comm)))[1]


def _start(case: Case, comm: CountedComm) -> tuple[Problem, Iterator[Step]]:
    """Return the problem and the Steps of a case on a rank."""
    entry = case.problem
    if isinstance(entry, str):
        entry = find_problem(entry)
    problem, train = entry.make(), case.strategy
    if isinstance(train, str):
        train = strategy(train, problem, comm.size)
    batches = islice(entry.batches(problem, entry.batch, case.seed), case.steps)
    update = entry.update if case.update is None else case.update
    own = case.options() if callable(case.options) else case.options
    taken = train(problem, batches, update, comm=comm, timer=Timer(comm.Wtime), **own)
    return problem, taken


def over_seeds(
    rows: Sequence[Mapping[str, Any]],
    reduce: Callable[[list[Any]], Any],
    *names: str,
    by_seed: bool = False,
) -> dict[str, Any]:
    """Return the reductions of fields of trainings that differ by their seeds.

    Args:
      rows: A row of each training.
      reduce: Reduction of the values of a field, such as `mean` or max.
      *names: Names of the fields.
      by_seed: Whether the field NAME_by_seed, a list of all values, precedes each.
    """
    reduced: dict[str, Any] = {}
    for name in names:
        values = [row[name] for row in rows]
        reduced |= {f"{name}_by_seed": values} if by_seed else {}
        reduced[name] = reduce(values)
    return reduced


def mean(values: Sequence[float]) -> float:
    """Return the mean, added in order."""
    return sum(values) / len(values)
