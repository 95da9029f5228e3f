"""AlexNet in two towers, a device each, that meet at some layers (Krizhevsky 2012).

python experiments/two_towers.py                            two devices of a process
mpirun -n 2 python experiments/two_towers.py                two processes
python experiments/two_towers.py --crossings=3678,678,8     layers that see both
python experiments/two_towers.py --data=<folder of CIFAR's files> --steps=3000

The first of --crossings is trained on one device too: the same params, the same losses
until rounding has grown. Colours, which the paper's towers share out, need CIFAR.
Cost: five networks, 200 steps of 64 images each.
Result: losses agree to 1e-6 in the first 20 steps. No way of crossing is clearly better
so soon, but XLA sends what the formula says: 834 KB a step, 1,896 if all layers cross.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import compiling
import flags
import jax
import numpy as np
import writing
from beside import Way, alone, axes, ran, trained
from server_runs import virtual_if_alone
from two_towers_report import COLUMNS, Trained, drawn, learned, row, summed

from dml.data.images import IMAGES, images
from dml.data.minibatches import draws
from dml.metrics import runs, writers
from dml.metrics.evaluation import evaluate
from dml.models import alexnet, towers
from dml.types import BadInput, Batch, CountedComm, Params
from dml.update.dense import Optimizer, make
from dml.wire.mesh import devices

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, lower_bound=1, flag_values=FLAGS)
text(
    *("data", "mnist_5k"),
    f"Images: {', '.join(IMAGES)}, or a folder of IDX or CIFAR files.",
)
text("crossings", "3678,678,8,2345678", "Layers that see both towers, by network.")
integer("unit", 4, "Maps for 32 of AlexNet's.")
integer("kernel", 7, "Side of the first layer's filters.")
integer("stride", 2, "Of the first layer.")
integer("batch", 64, "Images in a minibatch.")
integer("steps", 200, "Updates of each network.")
flags.number("lr", 1e-3, "Of Adam.", lower_bound=0, flag_values=FLAGS)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    flags.parse(FLAGS, argv)
    crossings = list(map(crossing, FLAGS.crossings.split(",")))
    path = runs.path(FLAGS.out, "two_towers")
    virtual_if_alone(FLAGS, alexnet.TOWERS)
    compiling.cached()

    def program(comm: CountedComm) -> dict[str, Any]:
        devices.start(comm)
        return compared(comm, path, crossings)

    return flags.ranks(program, FLAGS, devices=True)


def crossing(name: str) -> tuple[int, ...]:
    """Return the layers of a name such as 3678."""
    if not name.isdecimal() or list(name) != sorted(set(name)):
        raise BadInput(
            f"expected rising layers in --crossings, such as 3678, got {name!r}; "
            "correct it"
        )
    return tuple(map(int, name))


def compared(
    comm: CountedComm, path: Path, crossings: Sequence[tuple[int, ...]]
) -> dict[str, Any]:
    """Train the reference and every network in two towers."""
    training, held_out = images(FLAGS.data)
    classes = 1 + int(max(training.targets.max(), held_out.targets.max()))
    sizes = alexnet.Sizes(FLAGS.unit, FLAGS.kernel, FLAGS.stride)
    about = (training.inputs.shape[1:], classes, sizes)
    plans = {layers: alexnet.plan(*about, layers) for layers in crossings}
    two = axes(towers.AXIS, jax.devices(), alexnet.TOWERS)
    found: list[Trained] = []
    start: Params = None
    with writing.first(path, FLAGS, comm, writers.table(COLUMNS)) as writer:
        for layers, plan in plans.items():
            model = alexnet.alexnet(*about, layers)
            params = model.init(jax.random.key(FLAGS.seed))
            start = start or params
            split = towers.split(towers.tower(*about, layers), params, two)
            ways = [alone(model.loss), Way(split, two, towers.specs(params))]
            for way in ways if not found else ways[1:]:
                went = ran(trained(way, params, *learning(training)))
                scores = evaluate(model, held_out, went.last.params())
                sent = towers.crossing_bytes(plan, FLAGS.batch)
                found.append(Trained(layers, way.axes.size, went, scores, sent))
                writer.row(row(found[-1]))
        if comm.rank == 0:
            drawn(path / "two_towers", found, learned(found[0], start))
        summary = summed(found)
        writer.summary(summary)
    return summary


def learning(training: Batch) -> tuple[Optimizer, Batch, Iterator[np.ndarray]]:
    """Return how every network learns, and from what."""
    total = FLAGS.steps * FLAGS.batch
    order = draws(len(training.targets), FLAGS.batch, FLAGS.seed, total)
    return make("adam", FLAGS.lr), training, order


if __name__ == "__main__":
    flags.run(main)
