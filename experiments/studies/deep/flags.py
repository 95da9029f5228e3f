"""The flags of deep learning: of the strategy, of the update, and of checkpoints."""

import math
from typing import Any

from lab import flags

from dml.strategies.mesh import CALLS
from dml.types import Params
from dml.update.dense import OPTIMIZERS, Optimizer, make
from dml.update.schedules import SCHEDULES, WARMUPS, linear_scaling, schedule
from dml.wire.collectives import ALLREDUCE
from studies.deep import hybrid as deep_hybrid
from studies.deep.strategies import STRATEGIES

SHARED = ("seed", *flags.VIRTUAL, "straggle", "watchdog", "check")
SHARED += ("group", "outside", "timeline", "profile")
WARM = 10  # a warm-up is one of so many steps
# Flags that a resumed run may change: its examples, their order and rates stay
FREE = {*flags.WRITTEN, *flags.VIRTUAL, *deep_hybrid.OWN, "straggle", "watchdog"}
FREE |= {"resume", "save_every", "check_every", "evaluate_every", "timeline"}
FREE |= {"strategy", "allreduce", "bucket_mb", "call", "zero", "accumulate", "noise"}
FREE |= {"local_every", "local_after", "group", "outside", "check", "profile", "remat"}
FREE |= {"blank", "prompt", "sample"}


def define(**defaults: Any) -> flags.FlagValues:
    """Return the flags, with defaults of an experiment.

    defaults: batch, steps, optimizer, lr, decay; clip and bucket_mb or not.
    """
    values = flags.define(*SHARED)
    values.choice("strategy", "synchronous", list(STRATEGIES), "Strategy.")
    values.choice("allreduce", "auto", list(ALLREDUCE), "All-reduce of messages.")
    values.number(
        "bucket_mb",
        defaults.get("bucket_mb", 0.0),
        "MB of gradients in a bucket; 0: all at the end.",
        0,
    )
    values.choice("call", "shard_map", list(CALLS), "Compilation of mesh.")
    values.integer(
        "zero", 0, "Of mesh: shard state (1), gradients (2), parameters (3).", 0, 3
    )
    values.integer("local_every", 8, "Updates of local between two averages.", 1)
    values.integer(
        "local_after", 0, "Updates of local that are averaged one by one.", 0
    )
    values.integer("accumulate", 1, "Microbatches of a rank, one after another.", 1)
    values.switch("noise", False, "Measure the gradient noise scale.")
    values.integer(
        "batch", defaults["batch"], "Examples in a minibatch, over all ranks.", 1
    )
    values.integer("steps", defaults["steps"], "Number of updates without --epochs.", 1)
    values.integer("epochs", 0, "Number of epochs; 0: by --steps.", 0)
    values.choice("optimizer", defaults["optimizer"], list(OPTIMIZERS), "Optimizer.")
    values.number("lr", defaults["lr"], "Highest learning rate.", 0)
    values.integer(
        "base_batch", 0, "Batch of --lr, which is scaled with --batch; 0: not.", 0
    )
    values.number("decay", defaults["decay"], "Weight decay.", 0)
    values.number(
        "clip", defaults.get("clip", 0.0), "Greatest norm of a gradient; 0: any.", 0
    )
    values.choice(
        "schedule", "cosine", list(SCHEDULES), "Learning rates after the warm-up."
    )
    values.choice("warmup", "gradual", list(WARMUPS), "Learning rates in the warm-up.")
    values.integer("warmup_steps", -1, f"Steps of the warm-up; -1: one in {WARM}.", -1)
    values.number("start_lr", 0.0, "Learning rate at the start of the warm-up.", 0)
    values.choice(
        "dtype", "float32", ["float32", "bfloat16"], "Type of the products of layers."
    )
    values.switch("remat", False, "Recompute layers in the backward pass: less memory.")
    values.integer(
        "check_every", 100, "Steps between checks of equal replicas; 0: none.", 0
    )
    values.integer("evaluate_every", 0, "Steps between evaluations; 0: at the end.", 0)
    values.number(
        "save_every", 60.0, "Seconds between checkpoints; 0: when stopped.", 0
    )
    deep_hybrid.define(values)
    values.text("resume", None, "Run folder to continue.")
    return values


def rules(values: flags.FlagValues) -> dict[str, Any]:
    """Return the flags on which the bits of a run depend."""
    return {k: v for k, v in flags.chosen(values).items() if k not in FREE}


def total(values: flags.FlagValues, count: int) -> int:
    """Return the number of draws of a run from so many examples."""
    return values.epochs * count or values.steps * values.batch


def optimizer(values: flags.FlagValues, steps: int, like: Params) -> Optimizer:
    """Return the optimizer for so many steps; like has the shapes of params."""
    peak = values.lr
    if values.base_batch:
        peak = linear_scaling(peak, values.batch, values.base_batch)
    warm = steps // WARM if values.warmup_steps < 0 else values.warmup_steps
    rate = schedule(
        *(values.schedule, peak, steps), warm, values.warmup, values.start_lr
    )
    axis = None
    if values.strategy == "mesh" and values.zero:
        axis = "data"
    if values.strategy == "hybrid":
        axis = "tensor"
    return make(
        values.optimizer,
        rate,
        # hybrid clips before it: no part has the whole norm
        clip=math.inf if values.clip and values.strategy == "hybrid" else values.clip,
        decay=values.decay or None,
        axis=axis,
        like=like,
    )
