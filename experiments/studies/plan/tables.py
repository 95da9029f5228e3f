"""Rows and totals of plan.py: meshes, parts of the best step, memory, execution."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dml.planner import calibration as calibrations
from dml.planner import execution, memory, search, seconds
from dml.planner.execution import Conditions
from dml.runs.carbon import footprint, rent
from dml.runs.writers import Row
from dml.types import BadInput
from dml.wire.costs.checkpointing import Failures, best, expected_seconds
from studies.plan.question import GIB, Found

PATIENCE = 20  # checkpoint and restart, at most, in mean times between failures
STATE = 14  # bytes of a parameter in a checkpoint: bfloat16, float32 and two moments


def meshes(found: Found, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the fastest meshes, each with its best options."""
    query, plans = found.query, found.plans
    seen: set[str] = set()
    for index in plans.ranked():
        mesh = plans.mesh(int(index))
        text = search.describe(mesh)
        if text in seen:
            continue
        seen.add(text)
        yield {"rank": len(seen), "mesh": text, **mesh_row(found, int(index))}
        if len(seen) == query.best:
            return


def mesh_row(found: Found, index: int) -> dict[str, Any]:
    """Return the predictions of a mesh."""
    query, plans = found.query, found.plans
    step = float(plans.seconds[index])
    tokens = query.batch * query.shape.sequence
    return {
        "options": search.options(plans.mesh(index)),
        "seconds": step,
        "tokens_per_second": tokens / step,
        "mfu": share_of_peak(found, step),
        "gib": float(plans.memory[index]) / GIB,
    }


def share_of_peak(found: Found, step: float) -> float:
    """Return the flops of the model, without recomputation, over those of the peak."""
    query, run = found.query, found.run
    flops = query.shape.flops(query.batch * query.shape.sequence)
    return flops / (step * float(run.linear_peak) * query.cluster.devices)


def parts(found: Found, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the parts of a step, which add up to it."""
    run, query = found.run, found.query
    physics, constants = query.calibration.physics, found.plans.constants
    pieces = seconds.parts(run, physics, constants)
    hidden = float(seconds.hidden_seconds(run, physics, constants))
    for name, value in pieces.items():
        yield {
            "part": name,
            "seconds": float(value),
            "share": float(value) / found.seconds,
            "hidden": hidden if name == "data" else None,
        }
    remainder = found.seconds - sum(float(value) for value in pieces.values())
    yield {
        "part": "remainder",
        "seconds": remainder,
        "share": remainder / found.seconds,
        "hidden": None,
    }


def memory_table(found: Found, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the memory of a device by part."""
    pieces = memory.parts(found.run, found.query.calibration.sizes)
    for name, value in pieces.items():
        yield {"part": name, "gib": float(value) / GIB}


def executed(found: Found, _: Mapping[str, list[Row]]) -> Iterator[Row]:
    """Yield the step executed on virtual ranks: as planned, delayed, with a rival."""
    query = found.query
    straggler, jobs = query.conditions
    plain = Conditions()
    cases = {"as planned": plain}
    if straggler > 1:
        cases[f"one rank {straggler:g} times slower"] = plain._replace(
            straggler=straggler
        )
    if jobs > 1:
        cases[f"{jobs} jobs on the same nodes"] = plain._replace(jobs=jobs)
    for name, conditions in cases.items():
        done = execution.execute(
            found.run, query.calibration.physics, found.plans.constants, conditions
        )
        yield {
            "conditions": name,
            "seconds": done.seconds,
            "over_plan": done.seconds / found.seconds,
            "pipeline_seconds": done.pipeline,
            "messages": done.messages,
            "gigabytes": done.nbytes / 1e9,
        }


def execution_totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the summary of the executed steps."""
    if not rows:
        return {}
    return {
        "executed_seconds": rows[0]["seconds"],
        "executed_over_plan": rows[0]["over_plan"],
        "executed_messages": rows[0]["messages"],
        "slowest_over_plan": max(row["over_plan"] for row in rows),
    }


def totals(found: Found) -> dict[str, Any]:
    """Return time, price, energy and failures of the whole run."""
    query, step = found.query, found.seconds
    devices, chip, prices = query.cluster.devices, query.cluster.device, query.prices
    steps = query.tokens / (query.batch * query.shape.sequence)
    work = steps * step
    nodes = max(1.0, devices / chip.node)
    checkpoint = STATE * query.shape.parameters / (prices.checkpoint_rate * 1e9 * nodes)
    failures = Failures(
        max(checkpoint, 1.0), prices.restart, prices.failure_hours * 3600 / devices
    )
    if failures.checkpoint + failures.restart > PATIENCE * failures.mean:
        raise BadInput(
            "expected failures that leave time to work, got one in "
            f"{failures.mean:.3g} s, checkpoints of {failures.checkpoint:.3g} s and "
            f"restarts of {failures.restart:.3g} s; pass a larger --failure_hours or "
            "--checkpoint_gb_per_second"
        )
    interval = best(failures)
    whole = expected_seconds(failures, interval, work)
    hours = whole / 3600
    energy = footprint(chip.watts * devices, hours, prices.pue, prices.intensity)
    band = query.calibration.band
    _, known = calibrations.lookup(
        query.calibration, query.cluster.kind, query.cluster.precision
    )
    if not known:
        band = query.calibration.wide_band
    pieces = {row["part"]: row["seconds"] for row in parts(found, {})}
    other = {name: value for name, value in pieces.items() if name != "products"}
    limit = max(other, key=lambda name: other[name])
    return {
        "mesh": search.describe(found.mesh),
        "options": search.options(found.mesh),
        "meshes": len(found.plans.seconds),
        "fitting": int(found.plans.fits.sum()),
        "seconds": step,
        "seconds_low": step * band[0],
        "seconds_high": step * band[1],
        "fitted_device": known,
        "tokens_per_second": query.batch * query.shape.sequence / step,
        "mfu": share_of_peak(found, step),
        "gib": float(found.plans.memory[found.pick]) / GIB,
        "limit": limit,
        "limit_share": other[limit] / step,
        "steps": steps,
        "days": work / 86400,
        "days_with_failures": whole / 86400,
        "failures": whole / failures.mean,
        "checkpoint_seconds": failures.checkpoint,
        "checkpoint_minutes": interval / 60,
        "dollars": rent(devices, hours, chip.dollars),
        "mwh": energy.kwh / 1000,
        "co2_tonnes": energy.co2 / 1000,
    }
