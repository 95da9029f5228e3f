"""Sizes of a parallel training step: mesh axes, microbatches and sharding.

data       replicas: each has a shard of the minibatch; gradients are summed
stage      pipeline stages of consecutive layers; activations are sent to the next stage
tensor     slices of every matrix; partial results are summed inside each block
"""

from typing import NamedTuple


class MeshPlan(NamedTuple):
    """Division of a step; by default one device and one example per step."""

    data: int = 1  # replicas
    stage: int = 1  # pipeline stages
    tensor: int = 1  # devices over which each matrix is sharded
    microbatch: int = 1  # examples in a microbatch
    microbatches: int = 1  # microbatches per replica in a step
    schedule: str = "1f1b"  # name of the pipeline schedule
    remat: bool = False  # save only the inputs of blocks; recompute their activations
    sequence: bool = False  # norms and the residual stream are sharded over tensor
    zero: int = 0  # sharded over data: 1 state, 2 also gradients, 3 also params

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * self.stage * self.tensor

    @property
    def batch(self) -> int:
        """Number of examples in a step, over all replicas."""
        return self.data * self.microbatch * self.microbatches
