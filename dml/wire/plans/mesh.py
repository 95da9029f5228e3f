"""A plan: how the devices of a mesh share a step of training, as numbers alone.

data       replicas: each has examples of its own, and sends gradients
stage      contiguous parts of the layers: each sends what it made of a microbatch
tensor     slices of every matrix: inside each block all add up what they found
"""

from typing import NamedTuple


class Plan(NamedTuple):
    """How a step is cut; the defaults are one device that takes an example a step."""

    data: int = 1
    stage: int = 1
    tensor: int = 1
    microbatch: int = 1  # examples that a replica computes at a time
    microbatches: int = 1  # that a replica computes in a step
    schedule: str = "1f1b"
    remat: bool = False  # keep what goes into a block, compute its inside again
    sequence: bool = False  # norms and the stream are cut over tensor, by places
    zero: int = 0  # over data are cut: 1 the state, 2 gradients too, 3 params too

    @property
    def devices(self) -> int:
        return self.data * self.stage * self.tensor

    @property
    def batch(self) -> int:
        """Examples of a step, over all replicas."""
        return self.data * self.microbatch * self.microbatches
