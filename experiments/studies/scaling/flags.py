"""The flags of scaling.py, and the training and machine that they describe."""

from lab import flags

from dml.sim.networks.named import network
from dml.types import BadInput, CountedComm
from dml.wire import collectives as messages
from dml.wire.costs.allreduce import Rates
from studies.scaling import measured as scaling_measured
from studies.scaling.model import Training

FLAGS = flags.define(*flags.VIRTUAL, "watchdog")
FLAGS.integer("parameters", 1_000_000, "Parameters of the model.", 1, 10**10)
FLAGS.choice(
    "bytes_per_parameter", "4", ["2", "4", "8"], "Bytes of a parameter on the wire."
)
FLAGS.integer("batch", 64, "Examples a worker if weak, over all workers if strong.", 1)
FLAGS.choice(
    "scaling",
    "weak",
    ["weak", "strong"],
    "Scaling; weak keeps the examples of a worker, strong of all workers.",
)
FLAGS.integer("workers", 1024, "Largest number of workers to predict.", 1, 1 << 16)
FLAGS.integer("host", 8, "Workers that share memory.", 1)
FLAGS.number(
    "step_seconds",
    0.0,
    "Seconds of one worker's gradient of --batch examples; 0: measured.",
    0,
)
FLAGS.text(
    "rates",
    "",
    "Rates alpha,beta,gamma[,barrier,copy] in seconds; empty: measured between ranks, "
    "or those of --network on one rank.",
)


def training_from_flags(comm: CountedComm) -> Training:
    """Return the training by the flags; without --step_seconds, measure a gradient."""
    strong = FLAGS.scaling == "strong"
    fixed, example = 0.0, FLAGS.step_seconds / FLAGS.batch
    if not example:
        fixed, example = scaling_measured.gradient_line(
            comm, FLAGS.parameters, FLAGS.batch
        )
    itemsize = int(FLAGS.bytes_per_parameter)
    kind = FLAGS.parameters, itemsize, FLAGS.batch, strong
    return Training(*kind, fixed, example, FLAGS.host)


def rates_from_flags(comm: CountedComm) -> Rates:
    """Return the rates of --rates; if empty, those measured between ranks."""
    if comm.size > 1 and not FLAGS.rates:
        return messages.machine_rates(comm)
    if not FLAGS.rates:
        alpha, beta, gamma = network(FLAGS.network, 1).rates[:3]
        return Rates(alpha, beta, gamma, barrier=alpha, copy=beta)
    try:
        values = [float(rate) for rate in FLAGS.rates.split(",")]
        alpha, beta, gamma, barrier, copy = (
            values if values[3:] else [*values, *values[:2]]
        )
    except ValueError as error:
        raise BadInput(
            f"expected --rates of three numbers or five, got {FLAGS.rates!r}; pass "
            "alpha,beta,gamma[,barrier,copy] in seconds per message and per byte"
        ) from error
    if min(alpha, beta, gamma, barrier, copy) < 0:
        raise BadInput(
            f"expected rates of 0 or more, got --rates={FLAGS.rates}; pass seconds"
        )
    return Rates(alpha, beta, gamma, barrier, copy)
