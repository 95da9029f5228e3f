"""Seconds of a training step by phase: gradient, wire, update.

python experiments/step_time.py --peer=torch                  the GPT step, one process
mpirun -n 2 python experiments/step_time.py --peer=torch      against torch DDP, gloo
mpirun -n 2 python experiments/step_time.py --strategies=synchronous --bucket_mb=0,1,4
python experiments/step_time.py --strategies=mesh --devices=8 --zero=0,1,2,3
python experiments/step_time.py --model=bert --size=large --length=512 --batch=32 \
    --dtype=bfloat16 --peer=torch,torch_compile               on a GPU

The strategies alternate in one run after compilation; each step ends before the next
begins. The values are medians.

Cost: two minutes on 2 cores.
Result: a GPT step of 2 processes takes 491 ms with an all-reduce in buckets of 1 MB and
is 1.15 times as fast as torch DDP; on a mesh the sum of gradients takes 18 of 324 ms.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from lab import compiling, flags, writing
import jax
from studies.step_time import report, strategies
from studies.step_time import torch_training as peers

from dml.models.networks.transformer import DTYPES, SIZES
from dml.runs import folder, writers
from dml.types import BadInput, CountedComm
from dml.wire.comm import Metered
from dml.wire.mesh import devices

FLAGS = flags.define("seed", "watchdog", "check", "group", "outside")
FLAGS.choice("model", "gpt", list(strategies.TASKS), "Network.")
FLAGS.choice(
    "size", "mini", sorted({*SIZES["gpt"], *SIZES["bert"]}), "Size of gpt and bert."
)
FLAGS.integer("length", 128, "Number of tokens of an example.", 1)
FLAGS.integer("vocabulary", 8192, "Number of tokens.", 1)
FLAGS.integer("image", 32, "Height and width of the images of other models.", 1)
FLAGS.integer("batch", 16, "Examples in a minibatch, over all ranks or devices.", 1)
FLAGS.choice("dtype", "float32", list(DTYPES), "Type of the matrix products.")
FLAGS.switch("remat", False, "Recomputation of activations in the backward pass.")
FLAGS.number("clip", 1.0, "Largest norm of a gradient; 0: no limit.", 0)
FLAGS.text(
    "strategies", "all", f"Strategies, of {', '.join(strategies.STRATEGIES)}; or all."
)
FLAGS.text("bucket_mb", "0,1", "Bucket sizes of synchronous in MB; 0: one bucket.")
FLAGS.text("zero", "0", f"ZeRO levels of mesh, of {', '.join(strategies.LEVELS)}.")
FLAGS.define_allreduce("synchronous")
FLAGS.integer("devices", 0, "Number of CPU devices of a process; 0: one.", 0)
FLAGS.text("peer", "", f"PyTorch references, of {', '.join(peers.PEERS)}; empty: none.")
FLAGS.integer("rounds", 10, "Number of timings, whose median is taken.", 1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Time all strategies; return the summaries of this process's ranks."""
    from dml.wire.comm.mpi import world

    flags.parse(FLAGS, argv)
    chosen = flags.names(FLAGS.strategies, strategies.STRATEGIES, "strategies")
    others = flags.names(FLAGS.peer, peers.PEERS, "peer") if FLAGS.peer else []
    task = strategies.TASKS[FLAGS.model](FLAGS)
    if others:
        peers.check(FLAGS.model)
        # Set before JAX starts: on one GPU, JAX must not allocate all memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if FLAGS.devices:
        jax.config.update("jax_num_cpu_devices", FLAGS.devices)
    comm = Metered(world(FLAGS.watchdog))
    with compiling.explain_memory_errors():
        compiling.enable_cache()
        if "mesh" in chosen:
            devices.start(comm)
        return [compare(comm, task, chosen, others)]


def compare(
    comm: CountedComm, task: strategies.Task, chosen: list[str], others: list[str]
) -> dict[str, Any]:
    """Time strategies and PyTorch references alternately; write rows and summary."""
    workers = max(comm.size, len(jax.devices()) if "mesh" in chosen else 1)
    if FLAGS.batch % workers:
        raise BadInput(
            f"expected --batch divisible by {workers} workers, got {FLAGS.batch}; pass "
            f"--batch={-(-FLAGS.batch // workers) * workers}"
        )
    setup = strategies.setup(FLAGS, comm, task, jax.random.key(FLAGS.seed))
    steps = {}
    for strategy in chosen:
        steps |= dict(strategies.STRATEGIES[strategy](setup))
    steps |= {name: peers.steps(name, setup) for name in others}
    calls = {name: partial(next, iterator) for name, iterator in steps.items()}
    calls |= strategies.baselines(setup)
    laps = strategies.time_alternately(comm, calls, FLAGS.rounds, FLAGS.seed)
    rows = report.rows(setup, laps, set(others))
    peers.first_loss_difference(rows, FLAGS.dtype)
    path = folder.path(FLAGS.out, "step_time")
    table = writers.table(report.columns(task.unit), FLAGS.wide)
    chart = report.chart(path / "step_time")
    with writing.run_writer(
        path, FLAGS, comm, table, chart, conclude=report.conclude
    ) as writer:
        for row in rows:
            writer.row(row)
        summary = report.summary(setup, rows, laps)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
