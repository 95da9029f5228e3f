"""AlexNet in two towers on two devices, connected at some layers (Krizhevsky 2012).

python experiments/two_towers.py                            two devices of a process
mpirun -n 2 python experiments/two_towers.py                two processes
python experiments/two_towers.py --crossings=3678,678,8     layers connected to both
python experiments/two_towers.py --data=<folder of CIFAR's files> --steps=3000

The first network of --crossings is also trained on one device from the same parameters;
the losses agree until rounding errors have grown. The paper's towers specialise in
colours; this needs CIFAR as --data.

Cost: five networks, 200 steps of 64 images each.
Result: losses agree to 1e-6 in the first 20 steps. No set of crossings is clearly
better after 200 steps. XLA sends as much as the formula says: 834 KB per step, 1,896 KB
if all layers are connected.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, writing
import jax
from studies.deep import comparison
from studies.deep import two_towers_report as report

from dml.data.images.datasets import IMAGES, images
from dml.data.minibatches import draws, take
from dml.evaluation.scores import evaluate
from dml.models.model_problem import model_problem
from dml.models.networks import alexnet, towers
from dml.runs import folder, writers
from dml.types import BadInput, CountedComm
from dml.update.dense import make

FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.text(
    "data",
    "mnist_5k",
    f"Images: {', '.join(IMAGES)}, or a folder of IDX or CIFAR files.",
)
FLAGS.text(
    "crossings",
    "3678,678,8,2345678",
    "Layers connected to both towers, for each network.",
)
FLAGS.integer("unit", 4, "Number of maps of a layer where AlexNet has 32.", 1)
FLAGS.integer("kernel", 7, "Filter size of the first layer.", 1)
FLAGS.integer("stride", 2, "Stride of the first layer.", 1)
FLAGS.integer("batch", 64, "Images in a minibatch.", 1)
FLAGS.integer("steps", 200, "Number of updates of each network.", 1)
FLAGS.number("lr", 1e-3, "Learning rate of Adam.", 0)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    crossings = list(map(parse_crossing, FLAGS.crossings.split(",")))
    path = folder.path(FLAGS.out, "two_towers")
    program = partial(compare, path=path, crossings=crossings)
    return comparison.ranks(FLAGS, alexnet.TOWERS, program)


def parse_crossing(text: str) -> tuple[int, ...]:
    """Return the layers of a text such as 3678, one digit per layer."""
    if not text.isdecimal() or list(text) != sorted(set(text)):
        raise BadInput(
            f"expected ascending layers in --crossings, such as 3678, got {text!r}; "
            "correct it"
        )
    return tuple(map(int, text))


def compare(
    comm: CountedComm, path: Path, crossings: Sequence[tuple[int, ...]]
) -> dict[str, Any]:
    """Train the first network on one device, and every network in two towers."""
    training, held_out = images(FLAGS.data)
    count, total = len(training.targets), FLAGS.steps * FLAGS.batch
    classes = 1 + int(max(training.targets.max(), held_out.targets.max()))
    sizes = alexnet.AlexNetSizes(FLAGS.unit, FLAGS.kernel, FLAGS.stride)
    arguments = (training.inputs.shape[1:], classes, sizes)
    plans = {layers: alexnet.network_layers(*arguments, layers) for layers in crossings}
    two_devices = comparison.mesh(towers.AXIS, jax.devices(), alexnet.TOWERS)
    rows: list[dict[str, Any]] = []
    filter_changes = None
    table = writers.table(report.COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, comm, table, conclude=report.conclude
    ) as writer:
        for layers, plan in plans.items():
            model = alexnet.alexnet(*arguments, layers)
            params = model.init(jax.random.key(FLAGS.seed))
            calls = {"take": partial(take, training)}
            calls["evaluate"] = partial(evaluate, model, held_out)
            problem = model_problem(model, params, examples=count, **calls)
            tower = towers.tower_model(*arguments, layers)
            gradient = towers.sharded_gradient(tower, params, two_devices)
            specs = towers.specs(params)
            split_problem = problem._replace(gradient=gradient)
            divisions = [comparison.Division(split_problem, two_devices, specs)]
            if not rows:  # the first network is also trained on one device
                divisions.insert(0, comparison.one_device(problem))
            for division in divisions:
                order = draws(count, FLAGS.batch, FLAGS.seed, total)
                optimizer = make("adam", FLAGS.lr)
                result = comparison.train(division, order, optimizer, comm)
                nbytes = towers.crossing_bytes(plan, FLAGS.batch)
                rows.append(report.row(layers, division.axes.size, result, nbytes))
                writer.row(rows[-1])
                if filter_changes is None:
                    trained = result.summary["params"]
                    filter_changes = report.filter_changes(params, trained)
        if comm.rank == 0:
            report.draw(path / "two_towers", rows, filter_changes)
        summary = report.summary(rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
