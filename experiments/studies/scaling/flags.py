"""The flags of scaling.py, and the training and machine that they describe."""

from lab import flags

from dml.sim.networks.named import network
from dml.types import BadInput, CountedComm
from dml.wire import collectives
from dml.wire.costs.allreduce import Rates
from studies.scaling import measured as scaling_measured
from studies.scaling.model import Training

FLAGS = flags.define(*flags.VIRTUAL, "watchdog")
FLAGS.integer("parameters", 1_000_000, "Number of parameters.", 1, 10**10)
FLAGS.choice(
    "bytes_per_parameter", "4", ["2", "4", "8"], "Bytes of a parameter on the wire."
)
FLAGS.integer(
    "batch", 64, "Examples in a minibatch: per worker if weak, in total if strong.", 1
)
FLAGS.choice(
    "scaling",
    "weak",
    ["weak", "strong"],
    "Scaling: weak fixes the examples per worker, strong those of all workers.",
)
FLAGS.integer("workers", 1024, "Largest number of workers to predict.", 1, 1 << 16)
FLAGS.integer("host", 8, "Number of workers per host.", 1)
FLAGS.number(
    "step_seconds",
    0.0,
    "Seconds of one worker's gradient of --batch examples; 0: measured.",
    0,
)
FLAGS.text(
    "rates",
    "",
    "Rates alpha,beta,gamma[,barrier,copy]: seconds per message (alpha, barrier) and "
    "per byte; empty: measured between ranks, or those of --network on one rank.",
)


def training_from_flags(comm: CountedComm) -> Training:
    """Return the training of the flags; without --step_seconds, measure a gradient."""
    strong = FLAGS.scaling == "strong"
    fixed, example = 0.0, FLAGS.step_seconds / FLAGS.batch
    if not example:
        fixed, example = scaling_measured.gradient_line(
            comm, FLAGS.parameters, FLAGS.batch
        )
    return Training(
        FLAGS.parameters,
        int(FLAGS.bytes_per_parameter),
        FLAGS.batch,
        strong,
        fixed,
        example,
        FLAGS.host,
    )


def rates_from_flags(comm: CountedComm) -> Rates:
    """Return --rates; if empty, measured rates, or on one rank those of --network."""
    if comm.size > 1 and not FLAGS.rates:
        return collectives.machine_rates(comm)
    if not FLAGS.rates:
        alpha, beta, gamma = network(FLAGS.network, 1).rates[:3]
        return Rates(alpha, beta, gamma, barrier=alpha, copy=beta)
    try:
        values = [float(rate) for rate in FLAGS.rates.split(",")]
        if len(values) == 3:  # barriers and copies cost as much as messages
            values += values[:2]
        alpha, beta, gamma, barrier, copy = values
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
