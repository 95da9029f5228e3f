"""Learning rates of large_batch.py: scaling by the number of workers, and warm-up."""

from lab.shared_flags import FlagValues
import jax
import jax.numpy as jnp
import numpy as np

from dml.update.schedules import linear_scaling, schedule
from studies.large_batch.training import LargeBatchPlan

WARMUPS = {  # whether the rate is multiplied by k; shape of the warm-up
    "unscaled": (False, "none"),
    "none": (True, "none"),
    "constant": (True, "constant"),
    "gradual": (True, "gradual"),
}


def learning_rates(
    plan: LargeBatchPlan, factor: int, warmup: str, flags: FlagValues
) -> np.ndarray:
    """Return the learning rate of every update.

    Args:
      plan: Trainings of the command.
      factor: Number of workers.
      warmup: Name in WARMUPS; other names scale the rate and have no warm-up.
      flags: Peak rate `lr` of one worker, `warmup_epochs` and `schedule`.
    """
    steps, batch = plan.steps(factor), factor * plan.base
    scaled, shape = WARMUPS.get(warmup, (True, "none"))
    peak = linear_scaling(flags.lr, batch, plan.base) if scaled else flags.lr
    warm = min(steps, round(flags.warmup_epochs * plan.count / batch))
    rate = schedule(flags.schedule, peak, steps, warm, shape, flags.lr)
    return np.asarray(jax.jit(jax.vmap(rate))(jnp.arange(steps)), np.float32)
