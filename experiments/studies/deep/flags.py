"""Flags of deep networks: strategy, update and checkpoints."""

import math
from collections.abc import Collection
from typing import Any

from lab import flags
from lab.shared_flags import MAX_COUNT

from dml.strategies import DECENTRALISED
from dml.strategies.factor_plan import SCHEMES
from dml.strategies.mesh import CALLS
from dml.types import Params
from dml.update.curvature import DEFAULT
from dml.update.dense import OPTIMIZERS, Optimizer, make
from dml.update.norms import Axis
from dml.update.schedules import SCHEDULES, WARMUPS, linear_scaling, schedule
from dml.wire.plans.codes import coding
from studies.deep import hybrid as deep_hybrid
from studies.deep.strategies import STRATEGIES, has

SHARED = ("seed", *flags.VIRTUAL, "straggle", "watchdog", "check")
SHARED += ("group", "outside", "timeline", "profile")
AVERAGING = ("local", *DECENTRALISED)  # strategies whose last update is an average
WARMUP_DIVISOR = 10  # steps of a run per step of its warm-up
# Flags that a resumed run may change; they affect no examples, order or rates.
FREE = {
    *flags.WRITTEN,
    *flags.VIRTUAL,
    *deep_hybrid.HYBRID_FLAGS,
    "straggle",
    "watchdog",
}
FREE |= {"resume", "save_every", "save_overhead"}
FREE |= {"check_every", "evaluate_every", "timeline"}
FREE |= {
    "strategy",
    "allreduce",
    "reduce",
    "shards",
    "code",
    "bucket_mb",
    "scheme",
    "device_mb",
    "fraction",
    "call",
    "zero",
    "accumulate",
    "noise",
}
FREE |= {"elastic", "spares"}
FREE |= {"local_every", "local_after", "group", "outside", "check", "profile", "remat"}
FREE |= {"blank", "prompt", "sample", "consensus"}


def define(**defaults: Any) -> flags.FlagValues:
    """Define the flags.

    defaults: batch, steps, optimizer, lr and decay; optionally clip and bucket_mb.
    """
    values = flags.define(*SHARED)
    values.define_strategy(STRATEGIES, "Strategy.")
    values.text(
        "options", "", "Other options of the strategy, as name=value,name=value."
    )
    values.define_allreduce("messages")
    values.reducer()
    values.adversaries()
    values.integer(
        "shards",
        0,
        "Logical shards of a minibatch, each a term of --reduce; 0: one per rank.",
        0,
    )
    values.text(
        "code",
        coding.DEFAULT,
        "Code of strategy coded: repetition or cyclic, and wrong terms that it "
        "corrects.",
    )
    values.number(
        "bucket_mb",
        defaults.get("bucket_mb", 0.0),
        "MB of gradients in a bucket; 0: one buffer after the backward pass.",
        0,
    )
    values.choice(
        "scheme",
        "hybrid",
        list(SCHEMES),
        "Exchange of dense layers in strategy poseidon; hybrid: for each layer the one "
        "with the fewest words.",
    )
    curvature(values)
    values.number(
        "device_mb", 0.0, "Device memory of strategy offload in MB; 0: unlimited.", 0
    )
    values.choice("call", "shard_map", list(CALLS), "Compilation of the strategy mesh.")
    values.integer(
        "zero",
        0,
        "ZeRO stage: shards of the optimizer state (1), and in strategy mesh also of "
        "gradients (2) and parameters (3); 0: no shards.",
        0,
        3,
    )
    values.integer(
        "local_every",
        8,
        "Number of updates between two averages of strategy local.",
        1,
        MAX_COUNT,
    )
    values.integer(
        "local_after",
        0,
        "Number of updates at the start of local that are all averaged.",
        0,
        MAX_COUNT,
    )
    decentralised(values)
    values.integer(
        "accumulate", 1, "Number of microbatches per rank, with summed gradients.", 1
    )
    values.switch("noise", False, "Measurement of the gradient noise scale.")
    values.integer(
        "batch",
        defaults["batch"],
        "Number of examples in a minibatch, over all ranks.",
        1,
    )
    values.integer(
        "steps",
        defaults["steps"],
        "Number of updates; ignored with --epochs.",
        1,
        MAX_COUNT,
    )
    values.integer("epochs", 0, "Number of epochs; 0: --steps updates.", 0)
    values.choice("optimizer", defaults["optimizer"], list(OPTIMIZERS), "Optimizer.")
    values.number("lr", defaults["lr"], "Highest learning rate.", 0)
    values.integer(
        "base_batch",
        0,
        "Batch size to which --lr applies; 0: --lr is not scaled.",
        0,
    )
    values.number("decay", defaults["decay"], "Weight decay; 0: none.", 0)
    values.number(
        "clip",
        defaults.get("clip", 0.0),
        "Maximum norm of a gradient; 0: no clipping.",
        0,
    )
    values.choice(
        "schedule",
        "cosine",
        list(SCHEDULES),
        "Learning rate schedule after the warm-up.",
    )
    values.choice(
        "warmup", "gradual", list(WARMUPS), "Learning rate schedule of the warm-up."
    )
    values.integer(
        "warmup_steps",
        -1,
        f"Number of steps of the warm-up; -1: 1/{WARMUP_DIVISOR} of all.",
        -1,
        MAX_COUNT,
    )
    values.number("start_lr", 0.0, "Learning rate at the start of the warm-up.", 0)
    values.choice(
        "dtype", "float32", ["float32", "bfloat16"], "Data type of matrix products."
    )
    values.switch(
        "remat", False, "Recomputation of layers in the backward pass, to save memory."
    )
    values.integer(
        "check_every",
        100,
        "Steps between checks of equal replicas; 0: none.",
        0,
        MAX_COUNT,
    )
    values.integer(
        "evaluate_every", 0, "Steps between evaluations; 0: at the end.", 0, MAX_COUNT
    )
    values.number(
        "save_every", 60.0, "Seconds between checkpoints; 0: when stopped.", 0
    )
    values.number(
        "save_overhead",
        0.0,
        "Largest overhead of checkpoints in percent of the time, which sets their "
        "interval; 0: --save_every.",
        0,
        100,
    )
    deep_hybrid.define(values)
    values.text("resume", None, "Run folder to continue.")
    values.switch(
        "elastic",
        False,
        "Training that continues when ranks die, with Open MPI's --with-ft ulfm or on "
        "virtual ranks.",
    )
    values.integer(
        "spares", 0, "Number of spares, which replace dead workers of --elastic.", 0
    )
    return values


def curvature(values: flags.FlagValues) -> None:
    """Define the flags of strategy kfac."""
    values.number(
        "fraction",
        0.0,
        "Fraction of the ranks that store the inverses of a layer in strategy kfac; 0: "
        "all ranks.",
        0,
        1,
    )
    values.number("damping", DEFAULT.damping, "Damping of the curvature of kfac.", 0)
    values.number(
        "average",
        DEFAULT.average,
        "Weight of earlier minibatches in the curvature of kfac.",
        0,
        1,
    )
    values.integer(
        "curvature_every",
        DEFAULT.curvature_every,
        "Number of updates of kfac between two computations of the curvature.",
        1,
        MAX_COUNT,
    )
    values.integer(
        "inverses_every",
        DEFAULT.inverses_every,
        "Number of updates of kfac between two computations of its inverses.",
        1,
        MAX_COUNT,
    )
    values.number(
        "limit",
        DEFAULT.limit,
        "Largest squared norm of an update of kfac in the metric of the curvature, "
        "without the learning rate; 0: no limit.",
        0,
    )


def decentralised(values: flags.FlagValues) -> None:
    """Define the flags of strategies whose replicas differ."""
    values.text(
        "topology",
        "",
        "Topology of decentralised strategies, such as ring, exponential or grid:4x2; "
        "empty: the strategy's default.",
    )
    values.integer(
        "mix_every",
        1,
        "Number of updates between two rounds of mixing of decentralised strategies.",
        1,
        MAX_COUNT,
    )
    values.switch(
        "consensus",
        False,
        "Measure of the mean squared distance of replicas to their mean.",
    )
    values.integer(
        "outer_every",
        8,
        "Number of updates in an outer step of diloco, or a task of async_diloco.",
        1,
        MAX_COUNT,
    )
    values.number(
        "outer_lr",
        0.7,
        "Outer learning rate of diloco and async_diloco; 0.07 for the latter with "
        "--momentum_every=1.",
        0,
    )
    values.number(
        "outer_momentum", 0.9, "Outer momentum of diloco and async_diloco.", 0, 1
    )
    values.integer(
        "fragments", 1, "Number of fragments that diloco reduces in turn.", 1
    )
    values.integer(
        "delay", 0, "Number of updates after which a reduced fragment arrives.", 0
    )
    values.number(
        "keep", 0.0, "Weight of the local values of a fragment that arrives.", 0, 1
    )
    asynchronous(values)


def asynchronous(values: flags.FlagValues) -> None:
    """Define the flags of ad_psgd and async_diloco."""
    values.integer(
        "barrier_every",
        32,
        "Number of updates of a rank between two barriers of ad_psgd and async_diloco, "
        "with rows, evaluations and checkpoints; 0: only at the end.",
        0,
        MAX_COUNT,
    )
    values.integer(
        "aggregation_count",
        1,
        "Number of workers' changes in an outer step of async_diloco.",
        1,
        MAX_COUNT,
    )
    values.integer(
        "momentum_every",
        0,
        "Number of outer steps of async_diloco between two steps with momentum; 0: "
        "the number in which K changes of K workers arrive.",
        0,
        MAX_COUNT,
    )
    values.switch(
        "discount",
        False,
        "Weight 1/sqrt(1 + s) of changes that miss s outer steps of async_diloco.",
    )
    values.switch("dynamic", False, "Shorter tasks for slower workers of async_diloco.")


def rules(values: flags.FlagValues) -> dict[str, Any]:
    """Return the flags on which the results of a run depend."""
    return {f"--{k}": v for k, v in flags.chosen(values).items() if k not in FREE}


def can_be_extended(values: flags.FlagValues) -> bool:
    """Return whether a run with more --steps starts with the same updates.

    Learning rates of other schedules, and a warm-up by default, depend on --steps. The
    last minibatch of --epochs may be shorter than others. Strategies of several updates
    per step, or with replicas, end with an average.
    """
    fixed_rates = values.schedule == "constant" and (
        values.warmup == "none" or values.warmup_steps >= 0
    )
    return fixed_rates and not values.epochs and values.strategy not in AVERAGING


def total(values: flags.FlagValues, count: int) -> int:
    """Return the number of examples that a run draws from `count` examples."""
    return values.epochs * count or values.steps * values.batch


def optimizer(
    values: flags.FlagValues, steps: int, like: Params, outputs: Collection[str]
) -> Optimizer:
    """Return the optimizer for `steps` updates.

    Args:
      values: Flags.
      steps: Number of updates.
      like: Tree with the shapes of params.
      outputs: Names of the params of the output layer.
    """
    peak = values.lr
    if values.base_batch:
        peak = linear_scaling(peak, values.batch, values.base_batch)
    warm = steps // WARMUP_DIVISOR if values.warmup_steps < 0 else values.warmup_steps
    rate = schedule(values.schedule, peak, steps, warm, values.warmup, values.start_lr)
    axis: Axis = None  # on devices, the axes with parts of params or of their slices
    if has(values, "pipeline"):
        axis = ("tensor", "data") if values.zero else "tensor"
    elif has(values, "axes") and values.zero:
        axis = "data"
    return make(
        values.optimizer,
        rate,
        # these strategies clip gradients themselves: no device or rank has all of them
        clip=math.inf if values.clip and has(values, "clip") else values.clip,
        decay=values.decay,
        axis=axis,
        like=like,
        outputs=outputs,
    )
