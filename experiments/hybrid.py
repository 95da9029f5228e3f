"""One GPT on every mesh of the devices: data, stage and tensor axes, and products.

launch/local.sh --devices=8 experiments/hybrid.py          all ten meshes of 8 devices
launch/local.sh -n 2 experiments/hybrid.py                 all meshes of 2 processes
python experiments/hybrid.py --simulate=8 --mesh=stage:4,tensor:2 --pipeline=interleaved
python experiments/hybrid.py --simulate=4 --sequence --pipeline=gpipe

Cost: 140 s on 2 cores, most of it compilation; 40 s with a warm compilation cache.
Result: the losses of all meshes differ from those of one device by at most 5e-7.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lab import compiling, flags, writing
from lab.progress import PROGRESS
import jax
from studies.deep import hybrid as deep_hybrid
from studies.deep import hybrid_report as report
from studies.deep.setup import Setup

from dml.data.minibatches import draws, take
from dml.data.text.tokens import tokens
from dml.data.text.windows import causal_windows
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.tensor_transformer import tensor_transformer
from dml.models.networks.transformer import Shape, transformer
from dml.runs import folder, writers
from dml.strategies.serial import serial
from dml.train import curve
from dml.types import CountedComm, Step
from dml.update.dense import make
from dml.wire.mesh import axes, devices

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
deep_hybrid.define(FLAGS, mesh="all", microbatches=4)
FLAGS.switch("remat", False, "Recomputation of activations in the backward pass.")
FLAGS.number("clip", 1.0, "Largest norm of a gradient; 0: no limit.", 0)
FLAGS.number("lr", 3e-3, "Learning rate of AdamW.", 0)
FLAGS.integer("steps", 20, "Number of updates on every mesh.", 1)
FLAGS.integer("batch", 32, "Examples in a minibatch, over all replicas.", 1)
FLAGS.integer("blocks", 6, "Number of blocks.", 1)
FLAGS.integer("width", 64, "Width of the network in units.", 1)
FLAGS.integer("heads", 8, "Number of attention heads.", 1)
FLAGS.integer("length", 32, "Number of tokens of an example.", 1)
FLAGS.integer("vocabulary", 512, "Number of BPE tokens, trained on the corpus.", 1)
FLAGS.text("corpus", "enwiki", "Text: names, files or folders.")


def setups(comm: CountedComm) -> Callable[..., Setup]:
    """Return a function that makes equal initial states for all meshes."""
    corpus = tokens(FLAGS.corpus, "bpe", FLAGS.vocabulary)
    vocabulary = corpus.tokenizer.get_vocab_size()
    shape = Shape(vocabulary, FLAGS.length, FLAGS.blocks, FLAGS.width, FLAGS.heads)
    model = transformer(shape, causal=True)
    params = model.init(jax.random.key(FLAGS.seed))
    training, _ = causal_windows(corpus.ids, FLAGS.length)
    tensor_model = partial(tensor_transformer, shape, True)
    problem = model_problem(
        model, params, examples=training.count, take=partial(take, training)
    )

    def start(clip: float, axis: str | None = None) -> Setup:
        batch = FLAGS.batch
        order = draws(training.count, batch, FLAGS.seed, FLAGS.steps * batch)
        optimizer = make("adamw", FLAGS.lr, clip=clip, axis=axis, like=params)
        return Setup(
            FLAGS, comm, problem, order, optimizer, Timer(), tensor=tensor_model
        )

    return start


def runners(comm: CountedComm) -> Iterator[tuple[str, Callable[[], Iterator[Step]]]]:
    """Yield names and training functions: one device, then every mesh."""
    start, count = setups(comm), len(jax.devices())
    chosen = [axes.parse(FLAGS.mesh, count)] if FLAGS.mesh != "all" else None
    meshes = chosen or axes.mesh_shapes(count)
    for sizes in meshes:  # raise before the first compilation
        deep_hybrid.check(start(0.0), sizes)
    baseline = start(FLAGS.clip)
    arguments = (baseline.problem, baseline.batches, baseline.update)
    yield "one device", partial(serial, *arguments, comm=comm, timer=baseline.timer)
    for sizes in meshes:
        # No device has the norm of all gradients: the strategy clips instead.
        setup = start(0.0, "tensor")
        yield axes.format_axes(sizes), partial(deep_hybrid.on_mesh, setup, sizes)


def train(comm: CountedComm) -> dict[str, Any]:
    """Train on one device and on every mesh; write rows, curves and the verdict."""
    devices.start(comm)
    path = folder.path(FLAGS.out, "hybrid")
    tokens_per_step = FLAGS.batch * FLAGS.length
    rows: list[dict[str, Any]] = []
    both = writers.table(report.COLUMNS, FLAGS.wide), report.chart(path / "hybrid")
    with writing.run_writer(
        path, FLAGS, comm, *both, conclude=report.conclude
    ) as writer:
        for name, start in runners(comm):
            PROGRESS.step(name)
            row = report.row(name, curve(start()), tokens_per_step, rows[:1])
            rows.append(row)
            writer.row(row)
        summary = report.summary(rows)
        writer.summary(summary)
    return summary


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    with compiling.explain_memory_errors():
        compiling.enable_cache()
        return flags.ranks(train, FLAGS, devices=True)


if __name__ == "__main__":
    flags.run(main)
