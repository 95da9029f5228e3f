"""What `memory.py` says: tables, each made of those before it, and the summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import memory_compiled
from megatron_claims import ROUNDED
from memory_models import LECTURE, MODELS
from memory_search import GB, Found, Search, cheapest, found, how, least, text
from writing import flat

from dml.metrics.writers import Row
from dml.models.memory import LIVE, MIXED, Held, blocks, held, on_stage, parameters
from dml.models.transformer import SIZES, Shape

SIZES_GB = (16, 32, 40, 80)  # of devices: P100 or V100, V100, A100, A100 or H100
BYTES = MIXED.parameter + MIXED.gradient + MIXED.state
VERDICTS = {0.005: "agrees", ROUNDED: "agrees as rounded"}  # by most deviation


class Plan(NamedTuple):
    """What the flags ask for."""

    model: str
    search: Search
    by: Mapping[int, Sequence[Found]]  # what fits, by number of devices
    best: int  # how many of each to show
    compiled: bool


Kept = Mapping[str, Sequence[Row]]  # the rows of the tables before


def verdict(off: float) -> str:
    for most, word in VERDICTS.items():
        if abs(off) <= most:
            return word
    return "differs"


def lecture(plan: Plan, kept: Kept) -> Iterator[Row]:
    """Count real shapes, and what 16 bytes a parameter make of them."""
    for name in LECTURE:
        known = MODELS[name]
        assert known.billions and known.gigabytes
        count = parameters(known.shape, known.causal)
        gigabytes = BYTES * count / GB
        off = gigabytes / known.gigabytes - 1
        yield {
            "model": name,
            "published_billions": known.billions,
            "billions": count / GB,
            "published_gigabytes": known.gigabytes,
            "lecture_gigabytes": BYTES * known.billions,
            "gigabytes": gigabytes,
            "off": off,
            "verdict": verdict(off),
        }


def holding(plan: Plan, kept: Kept) -> Iterator[Row]:
    """Find the fewest devices of each size, and the fastest plan for so many."""
    for name in LECTURE:
        for size in SIZES_GB:
            search = plan.search._replace(known=MODELS[name], limit=size * GB)
            devices = least(search)
            yield {"model": name, "device_gb": size} | told(found(search, devices)[0])


def proposals(plan: Plan, kept: Kept) -> Iterator[Row]:
    """List the fastest plans of each number of devices, each mesh once."""
    for plans in plan.by.values():
        fastest: dict[str, Found] = {}
        for one in plans:
            fastest.setdefault(text(one.plan), one)
        for one in list(fastest.values())[: plan.best]:
            tokens = one.plan.batch * plan.search.known.shape.length
            yield (
                {"model": plan.model}
                | told(one)
                | {"tokens_per_second": tokens / one.seconds.total}
            )


def stages(plan: Plan, kept: Kept) -> Iterator[Row]:
    """Say what a device of every stage holds in the cheapest plan."""
    pick, known = cheapest(plan.by).plan, plan.search.known
    for stage in range(pick.stage):
        one = held(known.shape, known.causal, pick, stage)
        yield {
            "mesh": text(pick),
            "stage": stage,
            "blocks": blocks(known.shape.layers, pick.stage, stage),
            "alive": LIVE[pick.schedule](pick, stage),
            "parameters": on_stage(known.shape, known.causal, pick, stage),
            **sized(one),
        }


def sized(one: Held) -> dict[str, float]:
    """Return a device's GB, part by part and together."""
    parts = {f"{part}_gb": size / GB for part, size in one._asdict().items()}
    return parts | {"gb": one.total / GB}


def told(one: Found) -> dict[str, Any]:
    """Return what is said of a plan."""
    spent = one.seconds._asdict()
    computed = spent.pop("compute")
    binds = max(spent, key=lambda name: spent[name])
    return {
        "devices": one.plan.devices,
        "mesh": text(one.plan),
        "how": how(one.plan),
        "microbatch": one.plan.microbatch,
        "microbatches": one.plan.microbatches,
        **sized(one.held),
        "seconds": one.seconds.total,
        "device_seconds": one.price,
        "compute_share": computed / one.seconds.total,
        "binds": binds if spent[binds] else "nothing",
        "binds_share": spent[binds] / one.seconds.total,
    }


def compiled(plan: Plan, kept: Kept) -> Iterable[Row]:
    return memory_compiled.rows(compilable(plan)[1]) if plan.compiled else ()


def compilable(plan: Plan) -> tuple[str, Shape]:
    """Return the model itself if it compiles in seconds, else the smallest GPT."""
    small = [f"gpt-{name}" for name, size in SIZES["gpt"].items() if size[0] <= 4]
    name = plan.model if plan.model in small else small[0]
    return name, MODELS[name].shape


TABLES: dict[str, Callable[[Plan, Kept], Iterable[Row]]] = {
    "lecture": lecture,
    "holding": holding,
    "proposals": proposals,
    "stages": stages,
    "compiled": compiled,
}


def totals(plan: Plan, kept: Kept) -> dict[str, Any]:
    """Return the summary of all tables."""
    found: dict[str, Any] = {"model": plan.model}
    found |= flat(kept["lecture"], "{key}_{model}", "gigabytes", "verdict")
    found |= flat(kept["holding"], "{key}_{model}_{device_gb}", "devices")
    for row in kept["compiled"]:
        name = row["case"].replace(",", "").replace(" ", "_")
        found[f"temporary_ratio_{name}"] = row["temporary_ratio"]
        found[f"arguments_ratio_{name}"] = row["arguments_ratio"]
    return found | told(cheapest(plan.by))
