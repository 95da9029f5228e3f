"""AlexNet in two towers, a device each, that meet at some layers (Krizhevsky 2012).

python experiments/two_towers.py                            two devices of a process
mpirun -n 2 python experiments/two_towers.py                two processes
python experiments/two_towers.py --crossings=3678,678,8     layers that see both
python experiments/two_towers.py --data=<folder of CIFAR's files> --steps=3000

The first of --crossings is trained on one device too: the same params, the same losses
until rounding has grown. The paper's towers divide colours, for which --data must be
CIFAR.
Cost: five networks, 200 steps of 64 images each.
Result: losses agree to 1e-6 in the first 20 steps. No set of crossings is clearly
better so soon, but XLA sends what the formula predicts: 834 KB a step, 1,896 if all
layers cross.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from lab import flags, writing
from studies.deep import comparison
from studies.deep import two_towers_report as report

from dml.data.images.datasets import IMAGES, images
from dml.data.minibatches import draws, take
from dml.evaluation.scores import evaluate
from dml.models import alexnet, towers
from dml.models.network import network
from dml.runs import folder as runs
from dml.runs import writers
from dml.types import BadInput, CountedComm
from dml.update.dense import make

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.text(
    *("data", "mnist_5k"),
    f"Images: {', '.join(IMAGES)}, or a folder of IDX or CIFAR files.",
)
FLAGS.text(
    "crossings", "3678,678,8,2345678", "Layers that see both towers, by network."
)
FLAGS.integer("unit", 4, "Maps of a layer where AlexNet has 32.", 1)
FLAGS.integer("kernel", 7, "Side of the first layer's filters.", 1)
FLAGS.integer("stride", 2, "Stride of the first layer.", 1)
FLAGS.integer("batch", 64, "Images in a minibatch.", 1)
FLAGS.integer("steps", 200, "Updates of each network.", 1)
FLAGS.number("lr", 1e-3, "Learning rate of Adam.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train as the flags say; return the summaries of the ranks of this process."""
    flags.parse(FLAGS, argv)
    crossings = list(map(crossing, FLAGS.crossings.split(",")))
    path = runs.path(FLAGS.out, "two_towers")
    compare = partial(compared, path=path, crossings=crossings)
    return comparison.ranks(FLAGS, alexnet.TOWERS, compare)


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
    """Train the network on one device, and every network in two towers."""
    training, held_out = images(FLAGS.data)
    count, total = len(training.targets), FLAGS.steps * FLAGS.batch
    classes = 1 + int(max(training.targets.max(), held_out.targets.max()))
    sizes = alexnet.Sizes(FLAGS.unit, FLAGS.kernel, FLAGS.stride)
    about = (training.inputs.shape[1:], classes, sizes)
    plans = {layers: alexnet.plan(*about, layers) for layers in crossings}
    two = comparison.mesh(towers.AXIS, jax.devices(), alexnet.TOWERS)
    rows: list[dict[str, Any]] = []
    learned = None
    with writing.first(path, FLAGS, comm, writers.table(report.COLUMNS)) as writer:
        for layers, plan in plans.items():
            model = alexnet.alexnet(*about, layers)
            params = model.init(jax.random.key(FLAGS.seed))
            problem = network(
                model,
                params,
                examples=count,
                take=partial(take, training),
                evaluate=partial(evaluate, model, held_out),
            )
            split = towers.split(towers.tower(*about, layers), params, two)
            specs = towers.specs(params)
            divisions = [
                comparison.one_device(problem),
                comparison.Division(problem._replace(gradient=split), two, specs),
            ]
            for division in divisions[1:] if rows else divisions:
                order = draws(count, FLAGS.batch, FLAGS.seed, total)
                optimizer = make("adam", FLAGS.lr)
                found = comparison.trained(division, order, optimizer, comm)
                nbytes = towers.crossing_bytes(plan, FLAGS.batch)
                rows.append(report.row(layers, division.axes.size, found, nbytes))
                writer.row(rows[-1])
                if learned is None:
                    learned = report.learned(params, found.summary["params"])
        if comm.rank == 0:
            report.draw(path / "two_towers", rows, learned)
        summary = report.summary(rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
