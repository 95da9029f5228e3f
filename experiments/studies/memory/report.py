"""Tables and summary of memory.py."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lab.writing import flatten_rows

from dml.models.memory import (
    IN_FLIGHT,
    MIXED,
    DeviceBytes,
    blocks,
    device_bytes,
    parameters,
    stage_parameters,
)
from dml.models.networks.transformer import SIZES, Shape
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, scaled_cell
from studies.memory import compilation as memory_compiled
from studies.memory.search import (
    GB,
    LECTURE,
    MODELS,
    Candidate,
    Search,
    candidates,
    cheapest,
    fewest_devices,
    mesh_text,
    options_text,
)
from studies.tensor.claims import ROUNDING

SIZES_GB = (16, 32, 40, 80)  # memory of a P100 or V100, V100, A100, A100 or H100
BYTES = MIXED.parameter + MIXED.gradient + MIXED.state
VERDICTS = {0.005: "agrees", ROUNDING: "agrees as rounded"}  # by largest deviation
PLAN: Columns = {
    "devices": (7, "{devices:d}"),
    "s per step": (10, "{seconds:.3g}"),
    "GB used": (7, "{gb:.4g}"),
    "mesh": (27, "{mesh}"),
    "options": (21, "{options}"),
    "b x M": (8, "{microbatch} x {microbatches}"),
}
PARTS_GB: Columns = {
    "params": (7, "{parameters_gb:.3g}"),
    "grads": (7, "{gradients_gb:.3g}"),
    "state": (7, "{state_gb:.3g}"),
    "activ.": (7, "{activations_gb:.3g}"),
    "GB used": (7, "{gb:.4g}"),
}
COLUMNS: dict[str, Columns] = {
    "lecture": {
        "model": (10, "{model}"),
        "published GB": (12, "{published_gigabytes:g}"),
        "16 x counted": (12, "{gigabytes:.2f}"),
        "diff": (6, "{deviation:+.1%}"),
        " verdict": (18, " {verdict}"),
        "published B": (11, "{published_billions:g}"),
        "counted B": (9, "{billions:.3f}"),
        "16 x published": (14, "{sixteen_byte_gigabytes:g}"),
    },
    "holding": {
        "model": (10, "{model}"),
        "device GB": (9, "{device_gb:d}"),
        **PLAN,
    },
    "proposals": {
        **PLAN,
        **PARTS_GB,
        "tokens/s": (10, "{tokens_per_second:,.0f}"),
        "compute": (7, "{compute_share:.1%}"),
        "largest other": (14, "{largest_other} {largest_other_share:.1%}"),
    },
    "stages": {
        "stage": (5, "{stage:d}"),
        "blocks": (6, "{blocks:d}"),
        "in flight": (9, "{in_flight:d}"),
        **PARTS_GB,
        "parameters/device": (17, "{parameters:,}"),
    },
    "compiled": {
        "case": (20, "{case}"),
        "arguments": (9, scaled_cell("arguments", 1e-6, ".2f")),
        "pred/comp": (9, "{arguments_ratio:.3f}"),
        "temporary": (9, scaled_cell("temporary", 1e-6, ".2f")),
        "predicted": (9, scaled_cell("expected_temporary", 1e-6, ".2f")),
        "pred/comp ": (9, "{temporary_ratio:.3f}"),
        "batch": (5, "{batch:d}"),
        "length": (6, "{length:d}"),
        "output": (7, scaled_cell("output", 1e-6, ".2f")),
        "high water": (10, scaled_cell("high_water", 1e-6, ".2f")),
        "s": (4, "{compile_seconds:.1f}"),
    },
}
TITLES = {
    "lecture": "the lecture's table, 16 bytes per parameter: 2 + 2 + 12 of mixed Adam",
    "holding": "fewest devices that fit a model, and the fastest plan on them; "
    "b x M: microbatch size x number of microbatches",
    "proposals": "fastest meshes by number of devices; GB on the fullest device; "
    "largest other: largest share of a step besides computation",
    "stages": "stages of the cheapest plan: microbatches in flight, GB on a device",
}


class Arguments(NamedTuple):
    """The arguments of all tables.

    model: name of the model whose plans are searched.
    search: model, and the memory and speed of a device.
    plans_by_devices: plans that fit, by number of devices.
    best: number of meshes to list for each number of devices.
    compiled: whether to compile a step.
    high_water: whether to execute the compiled step.
    """

    model: str
    search: Search
    plans_by_devices: Mapping[int, Sequence[Candidate]]
    best: int
    compiled: bool
    high_water: bool = False


def lecture(arguments: Arguments, *_: Any) -> Iterator[Row]:
    """Compare parameter counts and 16 bytes per parameter with the lecture."""
    for name in LECTURE:
        workload = MODELS[name]
        assert workload.billions and workload.gigabytes
        count = parameters(workload.shape, workload.causal)
        gigabytes = BYTES * count / GB
        deviation = gigabytes / workload.gigabytes - 1
        yield {
            "model": name,
            "published_billions": workload.billions,
            "billions": count / GB,
            "published_gigabytes": workload.gigabytes,
            "sixteen_byte_gigabytes": BYTES * workload.billions,
            "gigabytes": gigabytes,
            "deviation": deviation,
            "verdict": next(
                (
                    text
                    for tolerance, text in VERDICTS.items()
                    if abs(deviation) <= tolerance
                ),
                "differs",
            ),
        }


def holding(arguments: Arguments, *_: Any) -> Iterator[Row]:
    """Yield the fewest devices by memory size, and the fastest plan on them."""
    for name in LECTURE:
        for size in SIZES_GB:
            search = arguments.search._replace(workload=MODELS[name], limit=size * GB)
            devices = fewest_devices(search)
            yield {"model": name, "device_gb": size} | plan_columns(
                candidates(search, devices)[0]
            )


def proposals(arguments: Arguments, *_: Any) -> Iterator[Row]:
    """Yield the fastest plans for each number of devices, each mesh once."""
    for plans in arguments.plans_by_devices.values():
        fastest: dict[str, Candidate] = {}
        for candidate in plans:
            fastest.setdefault(mesh_text(candidate.plan), candidate)
        for candidate in list(fastest.values())[: arguments.best]:
            tokens = candidate.plan.batch * arguments.search.workload.shape.length
            speed = {"tokens_per_second": tokens / candidate.seconds.total}
            yield {"model": arguments.model} | plan_columns(candidate) | speed


def stages(arguments: Arguments, *_: Any) -> Iterator[Row]:
    """Yield the memory of a device of every stage of the cheapest plan."""
    plan, workload = (
        cheapest(arguments.plans_by_devices).plan,
        arguments.search.workload,
    )
    for stage in range(plan.stage):
        device = device_bytes(workload.shape, workload.causal, plan, stage)
        yield {
            "mesh": mesh_text(plan),
            "stage": stage,
            "blocks": blocks(workload.shape.layers, plan.stage, stage),
            "in_flight": IN_FLIGHT[plan.schedule](plan, stage),
            "parameters": stage_parameters(
                workload.shape, workload.causal, plan, stage
            ),
            **gigabytes(device),
        }


def gigabytes(memory: DeviceBytes) -> dict[str, float]:
    """Return the GB of each part of a device's memory, and the sum."""
    parts = {f"{part}_gb": size / GB for part, size in memory._asdict().items()}
    return parts | {"gb": memory.total / GB}


def plan_columns(candidate: Candidate) -> dict[str, Any]:
    """Return the columns that describe a plan."""
    costs = candidate.seconds._asdict()
    computed = costs.pop("compute")
    other = max(costs, key=lambda name: costs[name])
    return {
        "devices": candidate.plan.devices,
        "mesh": mesh_text(candidate.plan),
        "options": options_text(candidate.plan),
        "microbatch": candidate.plan.microbatch,
        "microbatches": candidate.plan.microbatches,
        **gigabytes(candidate.memory),
        "seconds": candidate.seconds.total,
        "device_seconds": candidate.price,
        "compute_share": computed / candidate.seconds.total,
        "largest_other": other if costs[other] else "nothing",
        "largest_other_share": costs[other] / candidate.seconds.total,
    }


def compiled(arguments: Arguments, *_: Any) -> Iterable[Row]:
    """Yield measured and predicted memory of a compiled step of a small model."""
    if not arguments.compiled:
        return ()
    return memory_compiled.rows(compilable(arguments)[1], arguments.high_water)


def compilable(arguments: Arguments) -> tuple[str, Shape]:
    """Return the model if it compiles in seconds, else the smallest GPT."""
    small = [f"gpt-{name}" for name, size in SIZES["gpt"].items() if size[0] <= 4]
    name = arguments.model if arguments.model in small else small[0]
    return name, MODELS[name].shape


TABLES: dict[str, Callable[..., Iterable[Row]]] = {
    "lecture": lecture,
    "holding": holding,
    "proposals": proposals,
    "stages": stages,
    "compiled": compiled,
}


def totals(arguments: Arguments, tables: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Return the summary of all tables."""
    summary: dict[str, Any] = {"model": arguments.model}
    summary |= flatten_rows(tables["lecture"], "{key}_{model}", "gigabytes", "verdict")
    summary |= flatten_rows(tables["holding"], "{key}_{model}_{device_gb}", "devices")
    for row in tables["compiled"]:
        name = row["case"].replace(",", "").replace(" ", "_")
        summary[f"temporary_ratio_{name}"] = row["temporary_ratio"]
        summary[f"arguments_ratio_{name}"] = row["arguments_ratio"]
        summary[f"high_water_ratio_{name}"] = row["high_water_ratio"]
    return summary | plan_columns(cheapest(arguments.plans_by_devices))


def conclude(run: Run) -> str:
    """Return the fewest devices that hold the model, and the cheapest plan."""
    summary, rows = run.summary, run.rows
    fewest = min(row["devices"] for row in rows if row["table"] == "proposals")
    return (
        f"{summary['model']} fits {fewest} devices of {run.flags['device_gb']:g} GB; "
        f"the cheapest plan has {summary['devices']}: mesh {summary['mesh']}, "
        f"{summary['options']}, {summary['seconds']:.3g} s per step."
    )
