"""Columns of runs: sizes of model, mesh and device, one entry for each run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.planner.devices import Device
from dml.planner.shapes import Shape

PRECISIONS = ("bf16", "fp16", "fp8", "fp8_rowwise", "tf32", "fp32")
FLASH = 2048  # tokens of a sequence up to which old programs do not fuse attention


class Mesh(NamedTuple):
    """Division of a training step over devices."""

    data: int = 1  # replicas
    tensor: int = 1  # devices over which each matrix is sharded
    stage: int = 1  # pipeline stages
    context: int = 1  # devices over which each sequence is divided
    expert: int = 1  # devices over which the experts of a block are divided
    micro_batch: float = 1.0  # examples of a micro batch of a replica
    rounds: int = 1  # parts of the model on each stage (interleaving)
    zero: int = 0  # sharded over data: 1 state, 2 also gradients, 3 also parameters
    zero_group: int = 0  # devices over which they are sharded; 0: all replicas
    sequence_parallel: bool = False  # norms are sharded over tensor
    remat: float = 0.0  # fraction of the blocks that are recomputed
    selective: float = 0.0  # fraction of the blocks whose attention is recomputed

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.data * self.tensor * self.stage * self.context


class Runs(NamedTuple):
    """Arrays of equal length, or numbers: a column for each size of a run."""

    # model
    layers: Any
    width: Any
    queries: Any
    keys: Any
    heads: Any
    feed_forward: Any
    gated: Any
    vocabulary: Any
    sequence: Any
    experts: Any
    top_k: Any
    causal: Any
    output: Any  # fraction of the tokens whose next token is predicted
    # step
    batch: Any
    precision: Any  # index in PRECISIONS
    gradients32: Any  # gradients are accumulated in float32 beside those in bfloat16
    fused: Any  # attention by a fused kernel, without scores in memory
    modern: Any  # a kernel of 2023 or later
    fused_loss: Any  # a kernel that keeps no copy of the logits in float32
    # mesh
    data: Any
    tensor: Any
    stage: Any
    context: Any
    expert: Any
    micro_batch: Any
    rounds: Any
    zero: Any
    zero_group: Any
    sequence_parallel: Any
    remat: Any
    selective: Any
    # device
    peak: Any
    linear_peak: Any  # of products with weights
    memory: Any
    bandwidth: Any
    processors: Any
    link: Any
    network: Any
    node: Any
    domain: Any
    hopper: Any
    sharing: Any = 1.0  # ranks on a core, more than one only on CPUs

    @property
    def devices(self) -> Any:
        """Number of devices."""
        return self.data * self.tensor * self.stage * self.context

    @property
    def micro_batches(self) -> Any:
        """Micro batches of a replica in a step."""
        return self.batch / (self.data * self.micro_batch)

    @property
    def tokens(self) -> Any:
        """Tokens of a micro batch on a device."""
        return self.micro_batch * self.sequence / self.context

    @property
    def even(self) -> Any:
        """Whether all stages have equally many blocks."""
        return np.equal(self.layers % self.stage, 0)

    @property
    def largest_stage(self) -> Any:
        """Blocks of the largest stage; uneven ones count embedding and head."""
        uneven = np.ceil((self.layers + 2) / self.stage)
        return np.where(self.even, self.layers / self.stage, uneven)

    @property
    def itemsize(self) -> Any:
        """Bytes of an activation."""
        return np.where(
            np.asarray(self.precision) >= PRECISIONS.index("tf32"), 4.0, 2.0
        )

    @property
    def matrices(self) -> Any:
        """Feed-forward matrices that lead from the width to the hidden units."""
        return 1.0 + np.asarray(self.gated)

    @property
    def attention_parameters(self) -> Any:
        """Parameters of the attention of a block."""
        return 2.0 * self.width * (self.queries + self.keys)

    @property
    def expert_parameters(self) -> Any:
        """Parameters of one feed-forward layer."""
        return (self.matrices + 1) * self.width * self.feed_forward

    @property
    def flops(self) -> Any:
        """Flops of a step on all devices, with recomputation, as `Shape.flops`."""
        block = self.attention_parameters + self.top_k * self.expert_parameters
        scores = (
            2.0 * self.queries * self.sequence * (1 - 0.5 * np.asarray(self.causal))
        )
        passes = 3 + np.asarray(self.remat)
        head = 3 * self.output * self.vocabulary * self.width
        inside = passes * self.layers * (block + scores)
        return 2 * self.batch * self.sequence * (inside + head)


OF_SHAPE = (
    *("layers", "width", "queries", "keys", "heads", "feed_forward", "gated"),
    *("vocabulary", "sequence", "experts", "top_k", "causal"),
)
OF_MESH = (
    *("data", "tensor", "stage", "context", "expert", "micro_batch", "rounds", "zero"),
    *("sequence_parallel", "remat", "selective"),
)


def make(
    shape: Shape,
    mesh: Mesh,
    device: Device,
    batch: float,
    precision: str = "bf16",
    *,
    fused: bool = True,
    modern: bool = True,
) -> Runs:
    """Return one run as `Runs` of numbers.

    Args:
      shape: Sizes of the model.
      mesh: Division of the step.
      device: Rates of a device.
      batch: Examples of a step.
      precision: One of PRECISIONS.
      fused: Whether attention is a fused kernel.
      modern: Whether that kernel is of 2023 or later.
    """
    peaks = {"tf32": device.peak_tf32, "fp32": device.peak32}
    peak = peaks.get(precision, device.peak)
    linear = device.peak8 if precision == "fp8" else peak
    return Runs(
        **{name: float(getattr(shape, name)) for name in OF_SHAPE},
        **{name: float(getattr(mesh, name)) for name in OF_MESH},
        output=1.0 if shape.causal else 0.15,
        batch=float(batch),
        precision=PRECISIONS.index(precision),
        gradients32=0.0,
        fused=float(fused),
        modern=float(modern),
        fused_loss=0.0,
        zero_group=float(mesh.zero_group or mesh.data * mesh.context),
        peak=peak * 1e12,
        linear_peak=linear * 1e12,
        memory=device.memory * 2.0**30,
        bandwidth=device.bandwidth * 1e12,
        processors=float(device.processors),
        link=device.link * 1e9,
        network=device.network / 8 * 1e9,
        node=float(device.node),
        domain=float(device.domain or device.node),
        hopper=float(device.hopper),
    )


def stack(runs: Sequence[Runs]) -> Runs:
    """Return runs of numbers as columns."""
    return Runs(*(np.array(column) for column in zip(*runs, strict=True)))


def select(runs: Runs, index: Any) -> Runs:
    """Return the entries at an index or a mask; numbers stay numbers."""
    return Runs(*(c[index] if np.ndim(c) else c for c in runs))
