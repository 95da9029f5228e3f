"""Rows, table, summary and bars of step_time.py.

share of peak   operations per second divided by those of a large matrix product in the
                same repeats, or by the data sheet for the GPUs in PEAKS. Operations are
                XLA's count for the gradient without --remat.
wire share      share of a step that is communication. synchronous: phase `wire`, which
                includes packing and waiting; mesh: the sum of all gradients, measured
                separately.
overlap share   seconds saved by buckets divided by the wire seconds of a step without
                buckets; 1: the gradient hides all communication
x torch         PyTorch's seconds divided by those of the strategy
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dml.data.minibatches import take
from dml.data.shards import shard
from dml.figures import style as figures
from dml.figures.allreduce_times import ratio
from dml.models.gradient import gradient
from dml.runs.results import Run
from dml.runs.writers import Columns, Row, Writer, collector
from studies.step_time.strategies import LARGE, PRODUCT, PSUM, Laps, Setup
from studies.step_time.torch_training import first_loss_difference, threads

# Dense, without sparsity, by NVIDIA's data sheets; JAX's float32 products are TF32
DENSE = {
    "NVIDIA B200": 2250e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H200": 989e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L4": 121e12,
    "NVIDIA A10": 125e12,
}  # of bfloat16; TF32 has half of the speed
PEAKS = {
    kind: {"bfloat16": dense, "float32": dense / 2} for kind, dense in DENSE.items()
}
PHASES = {"input": "C7", "gradient": "C0", "wire": "C3", "update": "C2", "rest": "0.8"}


def rows(setup: Setup, laps: Mapping[str, Laps], peers: set[str]) -> list[Row]:
    """Return a row for each strategy.

    setup: arguments of the strategies.
    laps: times by name, including the baselines.
    peers: names of PyTorch references.
    """
    values, comm, task = setup.values, setup.comm, setup.task
    work, best = flops(setup), peak(setup, laps)
    base = laps.get("synchronous")
    rival = next((laps[name] for name in laps if name in peers), None)
    table = []
    for name, lap in laps.items():
        if name in (PRODUCT, PSUM):
            continue
        low, seconds, high = np.percentile(lap.seconds, (25, 50, 75)).tolist()
        separate = name.startswith("mesh") and PSUM in laps
        wire = (
            float(np.median(laps[PSUM].seconds)) if separate else lap.phases.get("wire")
        )
        phases = dict(lap.phases)
        if separate and wire is not None:  # XLA's gradient phase includes the wire
            phases["wire"] = min(wire, phases["gradient"])
            phases["gradient"] -= phases["wire"]
        overlap = None
        if base and comm.size > 1 and name.startswith("synchronous "):
            saved = np.median(base.seconds - lap.seconds)
            overlap = float(np.clip(saved / base.phases["wire"], 0, 1))
        bytes_held = lap.bytes_held or unsharded_bytes(setup)
        table.append(
            {
                "strategy": name,
                "peer": name in peers,
                "ms": seconds * 1e3,
                "lower_ms": low * 1e3,
                "upper_ms": high * 1e3,
                f"{task.unit}_per_second": values.batch * task.units / seconds,
                "teraflops": work / seconds / 1e12,
                "share_of_peak": work / seconds / best,
                "bytes_held": int(bytes_held),
                "wire_share": None if wire is None else wire / seconds,
                "overlap_share": overlap,
                "torch_ratio": rival and median_ratio(rival, lap),
                "first_loss": float(lap.losses[0]),
                "last_loss": float(lap.losses[1]),
                "p": comm.size,
                **{f"{phase}_ms": spent * 1e3 for phase, spent in phases.items()},
                "rest_ms": max(0.0, seconds - sum(phases.values())) * 1e3,
            }
        )
    return table


def median_ratio(slower: Laps, faster: Laps) -> float:
    """Return the median over repeats of the ratio of seconds."""
    return float(np.median(slower.seconds / faster.seconds))


def flops(setup: Setup) -> float:
    """Return XLA's count of operations of a minibatch's gradient, unoptimised."""
    comm, task = setup.comm, setup.task
    local = take(task.data, shard(next(setup.batches()), comm.rank, comm.size))
    cost = gradient.lower(task.plain.loss, setup.params, local).cost_analysis()
    return float(cost["flops"]) * comm.size


def peak(setup: Setup, laps: Mapping[str, Laps]) -> float:
    """Return the peak operations per second of all ranks and devices together."""
    device = jax.local_devices()[0].device_kind
    if device in PEAKS:
        count = max(setup.comm.size, len(jax.devices()))
        return PEAKS[device][setup.values.dtype] * count
    operations = 2.0 * LARGE[jax.default_backend()] ** 3
    return operations * setup.comm.size / float(np.median(laps[PRODUCT].seconds))


def unsharded_bytes(setup: Setup) -> int:
    """Return the bytes of params and the optimizer's state on a device, unsharded."""
    state = jax.eval_shape(setup.optimizer.init, setup.params)
    return sum(
        leaf.size * leaf.dtype.itemsize
        for leaf in jax.tree.leaves((setup.params, state))
    )


def columns(unit: str) -> Columns:
    """Return the columns of the table."""
    return {
        "strategy": (18, "{strategy}"),
        "ms": (8, "{ms:.1f}"),
        f"{unit}/s": (10, f"{{{unit}_per_second:,.0f}}"),
        "MB held": (8, lambda row: f"{row['bytes_held'] / 1e6:,.1f}"),
        "wire share": (10, "{wire_share:.1%}"),
        "x torch": (7, lambda row: ratio(row["torch_ratio"], 1)),
        "quartiles ms": (15, "{lower_ms:.1f}-{upper_ms:.1f}"),
        "TFLOP/s": (7, "{teraflops:.3g}"),
        "of peak": (7, "{share_of_peak:.1%}"),
        "overlap share": (13, "{overlap_share:.1%}"),
        "first loss": (10, "{first_loss:.5f}"),
    }


def summary(
    setup: Setup, rows: Sequence[Row], laps: Mapping[str, Laps]
) -> dict[str, Any]:
    """Return the flat summary, with the best strategy and the speed-up of buckets."""
    rate = f"{setup.task.unit}_per_second"
    shares = ("share_of_peak", "wire_share", "overlap_share", "torch_ratio")
    kept = ("ms", rate, *shares, "bytes_held")
    best = max((row for row in rows if not row["peer"]), key=lambda row: row[rate])
    totals = {
        "p": setup.comm.size,
        "devices": len(jax.devices()),
        "device": jax.local_devices()[0].device_kind,
        "threads": threads(),
        "best": best["strategy"],
        rate: best[rate],
        "flops": flops(setup),
        "peak_teraflops": peak(setup, laps) / 1e12,
        "peak_source": "data sheet"
        if jax.local_devices()[0].device_kind in PEAKS
        else "matrix product",
        "first_loss_gap": first_loss_difference(rows, setup.values.dtype),
    }
    if "synchronous" in laps and setup.comm.size > 1:
        plain = laps["synchronous"]
        speedups = [
            median_ratio(plain, lap) for name, lap in laps.items() if "MB" in name
        ]
        if speedups:
            seconds = float(np.median(plain.seconds))
            totals["buckets_speedup"] = max(speedups)
            # The speed-up if the gradient hid all communication.
            totals["buckets_most"] = seconds / (seconds - plain.phases["wire"])
    for row in rows:
        name = row["strategy"].replace(" ", "_").replace("=", "_").replace(".", "_")
        totals |= {f"{name}_{key}": row[key] for key in kept if row[key] is not None}
    return totals


def chart(path: Path) -> AbstractContextManager[Writer]:
    """Collect rows; draw them as bars when the summary is written."""
    return collector(lambda rows, summary: draw(path, rows, summary))


def draw(path: Path, rows: Sequence[Row], summary: Row) -> None:
    """Draw a stacked bar of the phases of a step for each row, with quartiles."""
    names = [row["strategy"] for row in rows]
    left = np.zeros(len(rows))  # ends of the bars so far
    medians, low, high = np.array(
        [(row["ms"], row["lower_ms"], row["upper_ms"]) for row in rows]
    ).T
    size = (7.2, 1.4 + 0.42 * len(rows))
    with figures.drawing(path, size=size, style=figures.PICTURE) as (figure, (axes,)):
        for phase, color in PHASES.items():
            spent = np.array([row.get(f"{phase}_ms", 0.0) for row in rows])
            look = {"color": color, "label": phase, "height": 0.62}
            bars = axes.barh(names, spent, left=left, **look)
            for bar, name in zip(bars, names, strict=True):
                if phase == "wire" and name.startswith("mesh"):
                    bar.set(hatch="///", edgecolor="white", linewidth=0)
            left += spent
        ends = np.maximum(left, high)
        for name, median, end in zip(names, medians, ends, strict=True):
            axes.text(end, name, f"  {median:.4g} ms", va="center", fontsize=8)
        around = {"fmt": "none", "color": "black", "linewidth": 0.8, "capsize": 2}
        axes.errorbar(medians, names, xerr=(medians - low, high - medians), **around)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set(
            xlabel="milliseconds per step (hatched: wire of mesh, measured separately)"
        )
        axes.set_title(
            f"{summary['p']} x {summary['threads']} threads, {summary['device']}: "
            f"peak {summary['peak_teraflops']:.3g} TFLOP/s",
            fontsize=9,
        )
        figures.legend(figure, "outside lower center", ncols=len(PHASES))


def conclude(run: Run) -> str:
    """Return the fastest strategy, and the milliseconds of all strategies."""
    rows = sorted(run.rows, key=lambda row: row["ms"])
    texts = [f"{row['strategy']} {row['ms']:.3g}" for row in rows]
    return (
        f"{rows[0]['strategy']} has the shortest step; milliseconds: "
        f"{', '.join(texts)}."
    )
