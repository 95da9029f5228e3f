"""The training of rl.py on a rank: Steps, evaluations, checkpoints, summary."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags
import jax
import numpy as np

from dml.evaluation.scores import digest
from dml.runs import results, states
from dml.runs.snapshots import snapshot
from dml.runs.writers import Writer
from dml.train import checkpointed, train
from dml.types import BadInput, Comm, CountedComm, Params, Problem, Step
from dml.update.dense import make
from dml.wire.collectives import tree_allreduce
from dml.wire.comm.metered import uncounted
from dml.wire.comm.surviving import with_survivors
from studies.rl.agent import draw_agent
from studies.rl.algorithms import ALGORITHMS, settings
from studies.rl.contract import Training

# Flags that determine the results of a resumed run, with the seed.
RULES = ("algorithm", "environment", "copies", "length", "optimizer", "lr", "seed")
RULES += ("widths",)
Stop = Callable[[], bool]  # () -> whether a signal to stop was received


def train_rank(
    values: flags.FlagValues,
    comm: CountedComm,
    problem: Problem,
    path: Path,
    writer: Writer,
    stopped: Stop,
) -> tuple[dict[str, Any], bool]:
    """Train on this rank; return the summary, and whether the run is complete.

    The summary is empty on ranks other than 0. A run that a signal stopped is not
    complete if it can be resumed.

    Args:
      values: Flags.
      comm: All ranks.
      problem: The problem; see `contract.Algorithm`.
      path: Run folder.
      writer: Receives a row per Step of rank 0.
      stopped: See Stop.
    """
    saved = load(values, problem, comm.rank) if values.resume else None
    if saved:
        problem = problem._replace(params=saved[1]["params"])
    algorithm = ALGORITHMS[values.algorithm]
    run = algorithm.train(values, problem, settings(values), comm, saved)
    stopped()  # after this call a signal no longer raises
    summary: dict[str, Any] = {}
    played = interrupted = 0.0  # steps of environments; whether a signal stopped it
    if run.group is None:
        played = sum(step.measures["steps"] for step in run.steps)
    else:
        frames = frames_before(values, saved[0]) if saved and comm.rank == 0 else 0
        summary = learn(values, run, Progress(run, comm, frames), path, writer, stopped)
        interrupted = algorithm.resumes and stopped()
    counts = comm.bytes_sent / 4, played, interrupted
    words, steps, stops = total(comm, counts, values.elastic)
    if comm.rank:
        return {}, not stops
    summary["words_sent"] = int(words)
    if steps:  # actors have played
        assert problem.play
        summary["environment_steps"] = int(steps) * problem.play.copies
    if algorithm.words and not values.elastic and values.learners == 1:
        actors = comm.size - values.learners
        summary["predicted_words"] = int(algorithm.words(problem, actors, steps))
    return summary, not stops


def learn(
    values: flags.FlagValues,
    run: Training,
    progress: "Progress",
    path: Path,
    writer: Writer,
    stopped: Stop,
) -> dict[str, Any]:
    """Train as a rank with params; return the summary of `train`."""
    assert run.group
    steps = progress.of(run.steps)
    if ALGORITHMS[values.algorithm].resumes:
        save = partial(save_checkpoint, run.group, path / "checkpoints", values)
        steps = checkpointed(steps, run.group, save, values.save_every, stopped)
    if values.until == "solved":
        steps = until(steps, run.group, lambda: progress.solved_seconds is not None)
    # order matters: closing `run.steps` ends the actors
    with closing(run.steps), closing(steps):
        summary = train(steps, progress.evaluate, writer, run.evaluate_every)
    assert progress.last
    params = progress.last.params()  # collective
    if progress.comm.rank == 0:
        draw_agent(path / "agent", values, run.tree(params), run.problem.play)
    return summary | progress.summary() | {"sha256": digest(params)}


class Progress:
    """Totals of the Steps so far, and the time at which the environment was solved.

    Args:
      run: The training.
      comm: All ranks; its clock is read.
      before: Frames of the run that is resumed. Times and lags are without it.
    """

    def __init__(self, run: Training, comm: CountedComm, before: int = 0) -> None:
        self.run, self.comm, self.begin = run, comm, comm.Wtime()
        self.before, self.frames, self.lags, self.lag_max = before, 0, 0.0, 0
        self.seconds = 0.0  # from the start to the last Step or evaluation
        self.solved_seconds: float | None = None
        self.last: Step | None = None

    def elapsed(self) -> float:
        """Return the seconds since the start, with evaluations."""
        self.seconds = self.comm.Wtime() - self.begin
        return self.seconds

    def of(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield the steps, with totals; `mean_return` remains that of evaluations."""
        for step in steps:
            measures = dict(step.measures)
            if "mean_return" in measures:
                measures["training_return"] = measures.pop("mean_return")
            self.frames += int(measures["frames"])
            self.lags += measures["lag_mean"] * measures["frames"]
            self.lag_max = max(self.lag_max, int(measures["lag_max"]))
            measures |= {
                "total_frames": self.before + self.frames,
                "elapsed_seconds": self.elapsed(),
            }
            self.last = step._replace(measures=measures)
            yield self.last

    def evaluate(self, params: Params) -> Mapping[str, Any]:
        """Evaluate on rank 0; store the time of the first return that is solved."""
        if self.comm.rank:
            return {}
        scores = self.run.problem.evaluate(params)
        seconds = self.elapsed()
        if self.solved_seconds is None and scores["mean_return"] >= self.run.solved:
            self.solved_seconds = seconds
        return scores

    def summary(self) -> dict[str, Any]:
        """Return the totals."""
        return {
            "frames": self.before + self.frames,
            "frames_per_second": self.frames / (self.seconds or 1),
            "lag_mean": self.lags / (self.frames or 1),
            "lag_max": self.lag_max,
            "solved_seconds": self.solved_seconds,
            "elapsed_seconds": self.seconds,
        }


def until(
    steps: Iterator[Step], group: Comm, done: Callable[[], bool]
) -> Iterator[Step]:
    """Yield the steps until `done` is true on a rank of the group."""
    for step in steps:
        yield step
        flag = np.array([done()], np.int64)
        if group.size > 1:
            group.Allreduce(None, flag, np.maximum)
        if flag[0]:
            return


def total(comm: CountedComm, values: Sequence[float], elastic: bool) -> list[float]:
    """Return the sums of values over the ranks that live; collective, not counted."""

    def add(living: Any, ranks: Any) -> list[float]:
        sums = np.array(values, np.float64)
        tree_allreduce(living, sums)
        return sums.tolist()

    if elastic:
        return with_survivors(comm, add)
    return add(uncounted(comm), None)


def rules(values: flags.FlagValues) -> dict[str, Any]:
    """Return the flags that a resumed run must share."""
    return {f"--{name}": values[name].value for name in RULES}


def frames_before(values: flags.FlagValues, done: int) -> int:
    """Return the frames of the first `done` updates of the run to resume."""
    path = Path(values.resume, "metrics.jsonl")
    rows = results.read_rows(path) if path.exists() else []
    return max((row["total_frames"] for row in rows if row["step"] <= done), default=0)


def save_checkpoint(
    group: Comm, folder: Path, values: flags.FlagValues, step: Step
) -> Callable[[], object] | None:
    """Copy params and the state of the update; return the function that writes them."""
    tree = {"params": step.params(), "state": step.state()}
    if group.rank:
        return None
    copied = snapshot(tree, {})
    return partial(states.write, folder, step.number, copied, rules(values))


def load(values: flags.FlagValues, problem: Problem, rank: int) -> tuple[int, Any]:
    """Return the number of updates, params and state of the run to resume."""
    chosen = settings(values)
    optimizer = make(chosen.optimizer, chosen.lr)
    state = jax.eval_shape(optimizer.init, problem.params)
    like = {"params": problem.params, "state": state}

    def warn(line: str) -> None:
        if rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, "checkpoints")
    done, saved = states.load(folder, rules(values), like, warn)
    if done >= values.updates:
        raise BadInput(
            f"expected more than the {done} updates of the run in {values.resume}, got "
            f"--updates={values.updates}; pass a larger number"
        )
    return done, saved
