"""An LSTM translator, a layer a device: the wavefront (Sutskever 2014, Wu 2016).

python experiments/translate.py                           four layers on four devices
mpirun -n 2 python experiments/translate.py --layers=2    two, on two processes
python experiments/translate.py --layers=8 --length=12    a longer way up

The language is invented: other words, in reversed order. The same network learns on one
device too: the same params, the same losses, K L ticks in place of L + K - 1. There is
no attention: the first layer would wait for the last to read, and lose K - 1 ticks.

Cost: 400 steps of 128 sentences, on one device and on four.
Result: 64 ticks become 19; the losses differ by less than 1e-4; over 90 % of held-out
translations are right to the last word.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from lab import flags, writing
from studies.deep import comparison
from studies.deep import translate_report as report

from dml.data.minibatches import draws, take
from dml.data.text.reversal import reversal
from dml.evaluation.scores import evaluate
from dml.models import translator
from dml.models.network import network
from dml.runs import folder as runs
from dml.runs import writers
from dml.train import Curve
from dml.types import Batch, CountedComm
from dml.update.dense import make

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.integer("layers", 4, "Layers, and devices: one for each.", 1)
FLAGS.integer("width", 64, "Width of a layer in units.", 1)
FLAGS.integer("words", 16, "Words of each language.", 1)
FLAGS.integer("length", 8, "Words of a sentence.", 1)
FLAGS.integer("batch", 128, "Sentences in a minibatch.", 1)
FLAGS.integer("steps", 400, "Updates.", 1)
FLAGS.integer("sentences", 30_000, "Training sentences.", 1)
FLAGS.integer("held_out", 512, "Held-out sentences.", 1)
FLAGS.integer("evaluate_every", 50, "Steps between two evaluations.", 1)
FLAGS.number("lr", 5e-3, "First learning rate of Adam: a cosine.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    flags.parse(FLAGS, argv)
    path = runs.path(FLAGS.out, "translate")
    return comparison.ranks(FLAGS, FLAGS.layers, partial(compared, path=path))


def compared(comm: CountedComm, path: Path) -> dict[str, Any]:
    """Train on one device, then with a layer a device; print how it translates."""
    layers, length = FLAGS.layers, FLAGS.length
    line = comparison.mesh(translator.AXIS, jax.devices(), layers)
    about = (FLAGS.sentences, FLAGS.held_out, FLAGS.words, length, FLAGS.seed)
    training, held_out = reversal(*about)
    model = translator.translator(FLAGS.words, FLAGS.width, layers)
    problem = network(
        model,
        model.init(jax.random.key(FLAGS.seed)),
        examples=len(training.targets),
        take=partial(take, training),
        evaluate=partial(evaluate, model, held_out),
    )
    rate = optax.cosine_decay_schedule(FLAGS.lr, FLAGS.steps)
    total = FLAGS.steps * FLAGS.batch
    found: dict[str, Curve] = {}
    with writing.first(path, FLAGS, comm, writers.table(report.COLUMNS)) as writer:
        say(comm.rank, report.sketched(layers, length, length))
        for name, division in report.divisions(problem, line).items():
            order = draws(problem.examples, FLAGS.batch, FLAGS.seed, total)
            optimizer = make("adam", rate, clip=1.0)
            found[name] = comparison.trained(
                division, order, optimizer, comm, FLAGS.evaluate_every
            )
            writer.row(report.row(name, layers, 2 * length, found[name]))
        params = found[report.WAVEFRONT].summary["params"]
        wrote = translator.translate(params, held_out.inputs)
        say(comm.rank, report.examples(held_out, np.asarray(wrote)))
        summary = report.summary(found, layers, 2 * length)
        if layers > 2 and jax.process_count() == 1:
            few = Batch(*(part[: FLAGS.batch] for part in training))
            summary |= report.raced(FLAGS.words, FLAGS.width, few)
            say(comm.rank, [report.verdict(summary)])
        writer.summary(summary)
        if comm.rank == 0:
            report.draw(path / "translate", found, (layers, length, length))
    return summary


def say(rank: int, lines: Iterable[str]) -> None:
    if rank == 0:
        sys.stdout.write("\n".join([*lines, "\n"]))


if __name__ == "__main__":
    flags.run(main)
