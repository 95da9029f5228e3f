"""GloVe (Pennington 2014): word vectors of a corpus, by any of seven strategies.

mpirun -n 8 python experiments/glove.py                        Wikipedia's 106 articles
mpirun -n 8 python experiments/glove.py --corpus=newsgroups    5 million words
mpirun -n 4 python experiments/glove.py --strategy=server      3 workers, 1 server
python experiments/glove.py --simulate=8 --medium=messages     virtual ranks
python experiments/glove.py --resume=runs/glove/…              resume

Cost: 26 s for the newsgroups by 8 ranks on 2 cores, 40 M records a second.
Result: 4.9 % of 10,070 analogies correct, as with the C program, on 1 to 8 ranks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, timelines, writing
import numpy as np
from studies.glove import counting, resuming, strategies
from studies.glove import flags as glove_flags
from studies.glove.report import (
    conclude,
    conclude_run,
    progress,
    results,
    speeds,
    total,
)

from dml.figures import style as figures
from dml.runs import checkpoints, folder, writers
from dml.runs.results import INTERRUPTED
from dml.strategies.glove.problem import problem
from dml.strategies.glove.tiling import by_row, by_word, tiled
from dml.train import checkpointed, interruptible, train
from dml.types import CountedComm, Embeddings, Step
from dml.update.rows import unpack
from dml.wire.comm import first_of_all

FLAGS = flags.define(
    "seed", *flags.RANKS, *flags.ALLREDUCES, *flags.TIMELINE, *flags.ORDER
)
counting.define(FLAGS)
glove_flags.define(FLAGS, strategies.STRATEGIES)
FLAGS.text("resume", None, "Run folder to resume.")
FLAGS.number("save_every", 60.0, "Seconds between checkpoints.", 0)
FLAGS.text(
    "neighbours",
    "king,france,computer,running",
    "Words to print with their neighbours.",
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Count, train, evaluate, write; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    strategies.check(FLAGS)
    path = folder.path(FLAGS.out or FLAGS.resume, "glove")
    with interruptible() as interrupted:
        call = partial(program, path=path, interrupted=interrupted)
        return flags.ranks(call, FLAGS, strategies.STRATEGIES[FLAGS.strategy].devices)


def program(
    comm: CountedComm, path: Path, interrupted: Callable[[], bool]
) -> dict[str, Any]:
    """Count, train and evaluate on one rank."""
    begun, comm = time.perf_counter(), flags.delayed(FLAGS, comm)
    counts = counting.counts(comm, FLAGS)
    counted = time.perf_counter() - begun
    known = len(counts.vocabulary.words)
    strategies.compile_kernels(FLAGS, comm)
    tiles, blocks = tiled(comm, counts.records, known, glove_flags.order(FLAGS))
    rules = resuming.rules(FLAGS, known, len(counts.records))
    done, state = resuming.begin(FLAGS, comm.rank, known, rules)
    devices = strategies.STRATEGIES[FLAGS.strategy].devices
    virtual = bool(FLAGS.simulate) and not devices
    timer = timelines.timer(comm, comm.Wtime if virtual else time.perf_counter)
    batch = strategies.batch(FLAGS, comm.size)

    def state_of(table: np.ndarray) -> Embeddings:
        return by_word(unpack(table, FLAGS.dim), blocks)

    def evaluate(table: np.ndarray) -> Mapping[str, Any]:
        return conclude(path, counts.vocabulary, state_of(table), FLAGS.neighbours)

    task = problem(by_row(state, blocks), tiles, blocks, batch, evaluate)
    setup = strategies.Setup(FLAGS, comm, task, timer, FLAGS.epochs - done, batch, {})
    finished = resuming.finished(setup, done)
    steps = strategies.steps(setup, done)
    steps = timelines.traced(steps, comm, FLAGS.timeline, path, FLAGS.profile)

    def save(step: Step) -> Callable[[], object] | None:
        table, epoch = step.params(), step.epoch or 0
        if table is None:
            return None
        file = path / checkpoints.FOLDER / f"epoch-{epoch}.npz"
        return partial(checkpoints.write, file, state_of(table)._asdict(), rules)

    line = partial(progress, virtual=virtual)
    console = writers.console(
        FLAGS.epochs, done, unit="epoch", row_text=line, summary_text=results
    )
    shown = console, figures.chart(path / "loss", "epoch")
    saved = closing(checkpointed(steps, comm, save, FLAGS.save_every, interrupted))
    with writing.run_writer(path, FLAGS, comm, *shown, conclude=conclude_run) as writer:
        with saved as steps:
            summary = train(steps, evaluate, writer, finished=finished)
        first_of_all(comm, lambda: None)  # other ranks sleep while rank 0 evaluates
        timeless = virtual and not FLAGS.straggle  # computation takes no time
        summary |= setup.summary | speeds(summary, len(tiles.logs), timeless)
        summary["words_sent"] = total(comm, summary["words_sent"])
        summary["cooccurrence_seconds"] = counted
        summary["virtual"] = virtual
        summary["total_seconds"] = time.perf_counter() - begun
        if (epoch := summary["epochs"]) < FLAGS.epochs:
            summary["status"] = INTERRUPTED
        writer.summary(summary)
    if epoch < FLAGS.epochs:
        raise flags.Stopped(
            f"stopped after epoch {epoch} of {FLAGS.epochs}; to resume, pass "
            f"--resume={path}"
        )
    return summary


if __name__ == "__main__":
    flags.run(main)
