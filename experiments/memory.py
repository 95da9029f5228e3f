"""Memory plans: parameters, gradients, optimizer state, activations per device.

python experiments/memory.py --model=gpt3 --device_gb=80
python experiments/memory.py --model=turing --device_gb=16 --devices=64
python experiments/memory.py --model=gpt2 --tflops=312 --gb_per_second=300
python experiments/memory.py --model=gpt-mini --nocompiled
python experiments/memory.py --model=gpt-mini --high_water       on a GPU

Cost: 13 s of one core, nearly all of it for four compilations; --nocompiled 2 s.
Result: the lecture's rule of 16 bytes per parameter is within 5 % of the real shapes.
GPT-3 needs 48 devices of 80 GB and is cheapest on 96: data:3,stage:4,tensor:8 without
remat. The temporaries of the compiled program are predicted within 3 %, with remat
within 19 %, because XLA's CPU compiler removes remat unless it keeps barriers.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.memory import figure as memory_figure
from studies.memory import report as memory_report
from studies.memory.search import (
    GB,
    MODELS,
    Search,
    candidates_by_devices,
    cheapest,
    mesh_text,
    options_text,
)
from studies.tensor.claims import counted, sixteen_bytes

from dml.models.memory import IN_FLIGHT
from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.wire.costs.allreduce import Rates
from dml.wire.costs.mesh import Machine

FLAGS = flags.define()
FLAGS.choice("model", "gpt3", list(MODELS), "Model to plan for.")
FLAGS.number("device_gb", 80.0, "Memory of a device in 10^9 bytes.", 1e-9)
FLAGS.integer(
    "devices", 0, "Number of devices; 0: the least that fit and 2, 4, 8 times that.", 0
)
FLAGS.integer("batch", 0, "Examples of a step; 0 uses the model's default.", 0)
FLAGS.choice("schedule", "1f1b", list(IN_FLIGHT), "Pipeline schedule.")
FLAGS.number(
    "tflops", 989.0, "Peak Tflop/s of a device; H100 in bfloat16, A100: 312.", 1e-9
)
FLAGS.number(
    "efficiency", 0.5, "Share of --tflops that matrix products reach.", 1e-9, 1
)
FLAGS.number(
    "gb_per_second", 450.0, "Bandwidth inside a host in GB/s; H100, A100: 300.", 1e-9
)
FLAGS.number("network_gb_per_second", 50.0, "Bandwidth between hosts in GB/s.", 1e-9)
FLAGS.number("microseconds", 5.0, "Latency of a message in microseconds.", 1e-9)
FLAGS.integer("host", 8, "Number of devices of a host.", 1)
FLAGS.integer("best", 3, "Number of meshes to show per number of devices.", 1)
FLAGS.switch("compiled", True, "Comparison with a compiled small GPT.")
FLAGS.switch(
    "high_water", False, "High-water mark of the device, by a step of the compiled GPT."
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Search with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "memory")
    query = search()
    candidates = candidates_by_devices(query, FLAGS.devices)
    arguments = memory_report.Arguments(
        model=FLAGS.model,
        search=query,
        plans_by_devices=candidates,
        best=FLAGS.best,
        compiled=FLAGS.compiled,
        high_water=FLAGS.high_water,
    )
    small, _ = memory_report.compilable(arguments)
    titles = memory_report.TITLES | {
        "compiled": f"as compiled: a step of {small}, MB; arguments: params and state"
    }
    shown = writers.tables(memory_report.COLUMNS, titles, FLAGS.wide)
    with writing.run_writer(
        path,
        FLAGS,
        None,
        shown,
        claims=(counted, sixteen_bytes),
        conclude=memory_report.conclude,
    ) as writer:
        tables = writing.write_tables(writer, memory_report.TABLES, arguments)
        summary = memory_report.totals(arguments, tables)
        best = cheapest(candidates)
        others = [plans[0] for plans in candidates.values() if plans[0] != best]
        title = f"{FLAGS.model}, devices of {FLAGS.device_gb:g} GB"
        bars = memory_figure.bars(query, best, others)
        memory_figure.draw(path / "memory", bars, query.limit, title)
        print_cheapest(arguments, summary)
        writer.summary(summary)
    return summary


def search() -> Search:
    """Return the model and the devices of the flags."""
    model = MODELS[FLAGS.model]
    model = model._replace(batch=FLAGS.batch or model.batch)
    latency = FLAGS.microseconds / 1e6
    machine = Machine(
        FLAGS.tflops * 1e12 * FLAGS.efficiency,
        Rates(latency, 1 / FLAGS.gb_per_second / GB, 0.0),
        Rates(latency, 1 / FLAGS.network_gb_per_second / GB, 0.0),
        FLAGS.host,
    )
    return Search(model, FLAGS.device_gb * GB, machine, FLAGS.schedule)


def print_cheapest(arguments: memory_report.Arguments, summary: Row) -> None:
    """Print the cheapest plan, and the smaller model that was compiled, if any."""
    best, model = cheapest(dict(arguments.plans_by_devices)), arguments.model
    small, _ = memory_report.compilable(arguments)
    if arguments.compiled and small != model:
        print(f"\n{model} compiles for minutes; {small} was compiled instead")
    print(
        f"\ncheapest: --mesh={mesh_text(best.plan)} ({options_text(best.plan)}, "
        f"microbatches of {best.plan.microbatch}): "
        f"{summary['gb']:.1f} GB per device of {FLAGS.device_gb:g} GB, "
        f"{summary['seconds']:.3g} s per step, {best.price:,.3g} device-seconds"
    )


if __name__ == "__main__":
    flags.run(main)
