"""Train on 8 devices of one process, and write what came of it for test_mesh.

A process of its own: how many devices there are is settled when JAX starts.
"""

import sys

import jax
import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove import mesh as module
from dml.strategies.glove.problem import problem as problem_of
from dml.strategies.glove.tiling import Order, tiled
from dml.types import Problem
from dml.update.rows import unpack
from dml.wire.mesh.devices import mesh
from dml.wire.plans.rotation import rounds

WORDS, DIM, BATCH, RATE, EPOCHS = 60, 8, 301, 0.05, 3
MESHES = {"1x1": (1, 1), "2x1": (2, 1), "1x2": (1, 2), "2x4": (2, 4)}
# minibatch takes roots to 5e-6, and each of at most 21 updates is off by as much
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CLOSE_LOSS = {"rtol": 1e-5}
RECORD = [("word", "<i4"), ("context", "<i4"), ("value", "<f8")]


def problem(tables: int, seed: int = 0) -> Problem:
    """Draw records; 1 and 2 tables have different ones, as 1 lacks the diagonal."""
    rng = np.random.default_rng(seed)
    records = np.zeros(2000, RECORD)
    records["word"] = np.minimum(rng.zipf(1.3, len(records)), WORDS)
    records["context"] = rng.integers(1, WORDS + 1, len(records))
    records["value"] = 20 * rng.random(len(records))
    cells = [cell for one in rounds(4, tables) for task in one for cell in task]
    order = Order(cells, 4, tables, 16, 0, 10.0, 0.75)
    ((tiles, blocks),) = sim.run(lambda comm: tiled(comm, records, WORDS, order), 1)
    return problem_of(glove(WORDS, DIM, tables).init(1), tiles, blocks, BATCH)


def alone(program):
    """Run a program of one rank."""
    return sim.run(program, 1)[0]


def train(axes, tables, compiled):
    """Return losses, end, how often XLA compiled a step, and if memory was reused."""
    task = problem(tables)
    state = task.products.state
    before = [numbers.copy() for numbers in state]

    def program(comm):
        options = {"comm": comm, "timer": Timer(), "axes": axes, "batch": BATCH}
        steps = module.mesh(task, range(EPOCHS), RATE, **options)
        start, held, losses = len(compiled), [], []
        for step in steps:
            losses.append(step.loss)
            held.append(step.params.args[-1])
        count = len(compiled) - start
        reused = all(n.is_deleted() for old in held[:-1] for n in old)
        return losses, unpack(step.params(), DIM), count, reused

    losses, end, count, reused = alone(program)
    assert all(map(np.array_equal, before, state)), "the caller's state was changed"
    return losses, end, count, reused


def main(path):
    assert len(jax.devices()) == 8
    module.GROUP = 3  # 7 minibatches: 3 groups, 2 minibatches of the last one empty
    compiled, found = [], {}
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: "backend_compile" in event and compiled.append(event)
    )
    for name, shape in MESHES.items():
        if np.prod(shape) == 8:
            axes = mesh(batch=shape[0], dim=0)
        else:
            devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
            axes = jax.sharding.Mesh(devices, ("batch", "dim"))
        for tables in (1, 2):
            key = f"{name} {tables}"
            losses, end, count, reused = train(axes, tables, compiled)
            found |= {f"{key} {field}": n for field, n in end._asdict().items()}
            found |= {f"{key} losses": losses}
            found |= {f"{key} compiled": count, f"{key} reused": reused}
    np.savez(path, **found)


if __name__ == "__main__":
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        main(sys.argv[1])
