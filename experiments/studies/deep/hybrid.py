"""Flags and arguments of the strategy `hybrid`.

The flags determine the axes of a mesh, a Tensor and a Pipeline.
"""

import sys
from collections.abc import Iterator
from typing import Any

from lab import flags
import jax
import numpy as np

from dml.models.layer_costs import COSTS
from dml.strategies.hybrid import pipedream
from dml.strategies.hybrid.hybrid import check_zero, hybrid, replicate_layers
from dml.strategies.hybrid.parts import TRANSPOSED, Pipeline, divide
from dml.strategies.hybrid.picture import mesh_lines
from dml.types import BadInput, Step, Tensor
from dml.wire.collectives import broadcast
from dml.wire.mesh import axes, devices
from dml.wire.plans.pipeline.schedules import SCHEDULES
from studies.deep.setup import Setup

HYBRID_FLAGS = ["mesh", "pipeline", "microbatches", "rounds", "sequence", "balance"]


def define(values: flags.FlagValues, mesh: str = "", microbatches: int = 1) -> None:
    """Define the flags of hybrid, with these defaults."""
    values.text(
        "mesh",
        mesh,
        "Axes and sizes of the mesh: data, stage, tensor, sequence, as "
        "data:2,stage:2,tensor:2; empty: all devices on axis data.",
    )
    values.choice("pipeline", "1f1b", [*SCHEDULES, TRANSPOSED], "Pipeline schedule.")
    values.integer(
        "microbatches", microbatches, "Number of microbatches of a replica.", 1
    )
    values.integer(
        "rounds",
        1,
        "Number of parts per stage: 2 in zb_v, any in interleaved, else 1.",
        1,
    )
    values.switch(
        "sequence",
        False,
        "Whether activations are divided over axis tensor by position.",
    )
    values.choice(
        "balance", "flops", list(COSTS), "Layer cost that is balanced over the stages."
    )


def on_axes(setup: Setup) -> dict[str, Any]:
    """Return hybrid's arguments for the mesh of --mesh."""
    count = len(jax.devices())
    check_zero(setup.values.zero, setup.values.pipeline)
    sizes = axes.parse(setup.values.mesh or f"data:{count}", count)
    return arguments(setup, sizes) | {"zero": setup.values.zero}


def on_mesh(setup: Setup, sizes: dict[str, int]) -> Iterator[Step]:
    """Train on a mesh of these axes; print the division of the network."""
    return hybrid(
        setup.problem,
        setup.batches,
        setup.update,
        comm=setup.comm,
        timer=setup.timer,
        **arguments(setup, sizes),
    )


def arguments(setup: Setup, sizes: dict[str, int]) -> dict[str, Any]:
    """Return hybrid's own arguments for a mesh; print the division of the network."""
    check(setup, sizes)
    values, mesh = setup.values, devices.mesh(**sizes)
    cut = network(setup, sizes)
    pipeline = Pipeline(
        schedule=values.pipeline,
        microbatches=values.microbatches,
        rounds=values.rounds,
        remat=values.remat
        and setup.tensor
        is not None,  # a model that is not divided applies --remat itself
        seconds=costs(setup) if sizes["stage"] > 1 else (),
    )
    if setup.comm.rank == 0:
        parts = divide(cut, setup.problem.params, mesh, pipeline)
        sys.stderr.write("\n".join([*mesh_lines(parts, mesh), ""]))
    return {
        "axes": mesh,
        "pipeline": pipeline,
        "tensor": cut,
        "clip": values.clip,
        "state": setup.state,
        "prefetch": setup.prefetch,
    }


def check(setup: Setup, sizes: dict[str, int]) -> None:
    """Raise BadInput for axes that cannot divide the network; compile nothing."""
    values = setup.values
    if values.microbatches > values.batch:
        raise BadInput(
            f"expected at most --batch={values.batch} microbatches, got "
            f"{values.microbatches}; pass fewer"
        )
    pipeline = Pipeline(values.pipeline, values.microbatches, values.rounds)
    cut = network(setup, sizes)
    parts = divide(cut, setup.problem.params, devices.mesh(**sizes), pipeline)
    if values.pipeline == "pipedream":
        pipedream.check_pipedream(parts, pipeline, values.clip)


def check_batches(values: flags.FlagValues, total: int) -> None:
    """Raise BadInput for minibatches of two sizes with pipedream.

    `total` is the number of examples of a run.
    """
    if values.pipeline != "pipedream":  # a flag that other strategies refuse
        return
    if total % values.batch:
        raise BadInput(
            f"expected minibatches of one size with pipedream, got {total} examples by "
            f"{values.batch}; pass --steps in place of --epochs"
        )


def network(setup: Setup, sizes: dict[str, int]) -> Tensor:
    """Return the network divided over the axes tensor and sequence."""
    size, ring = sizes["tensor"], sizes.get("sequence", 1)
    if setup.tensor is not None:
        return setup.tensor(size, sequence=setup.values.sequence, ring=ring)
    if size > 1 or ring > 1 or setup.values.sequence:
        raise BadInput(
            f"expected a network that can be divided by tensor:{size}, sequence:{ring} "
            "or --sequence, got one that cannot; pass tensor:1 and sequence:1, or run "
            "gpt.py or bert.py"
        )
    assert setup.problem.model
    return replicate_layers(setup.problem.model, setup.problem.params)


def costs(setup: Setup) -> list[float]:
    """Return the cost of each layer by --balance; equal on all ranks."""
    examples = max(1, setup.values.batch // setup.values.microbatches)
    problem, cost = setup.problem, COSTS[setup.values.balance]
    assert problem.model
    like = problem.take(np.arange(examples))
    buffer = np.array(cost(problem.model.layers, problem.params, like))
    broadcast(setup.comm, buffer)
    return buffer.tolist()
