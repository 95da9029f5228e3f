"""Figure of memory.py: memory of the fullest device, one stacked bar per plan."""

from collections.abc import Sequence
from pathlib import Path

from dml.figures import style as figures
from dml.models.memory import DeviceBytes, fullest_device
from dml.wire.plans.mesh import MeshPlan
from studies.memory.search import GB, Candidate, Search, mesh_text, options_text


def bars(
    search: Search, pick: Candidate, others: Sequence[Candidate]
) -> dict[str, DeviceBytes]:
    """Return the memory of a plan, of the plan without each option, and of others."""
    plan = pick.plan
    without = {
        "gpipe": plan._replace(schedule="gpipe"),
        "no remat": plan._replace(remat=False),
        "no sequence": plan._replace(sequence=False),
        "no zero": plan._replace(zero=0),
    }
    plans = {label(plan): plan}
    plans |= {
        f"same, {k}": changed for k, changed in without.items() if changed != plan
    }
    plans |= {label(other.plan): other.plan for other in others}
    workload = search.workload
    return {
        k: fullest_device(workload.shape, workload.causal, other)
        for k, other in plans.items()
    }


def label(plan: MeshPlan) -> str:
    """Return a label of two lines for a plan."""
    microbatches = f"{plan.microbatch} x {plan.microbatches}"
    return f"{mesh_text(plan)}\n{options_text(plan)}, {microbatches}"


def draw(
    path: Path, memory_by_label: dict[str, DeviceBytes], limit: float, title: str
) -> None:
    """Draw the memory of each plan as a bar, and the limit of a device."""
    labels, left = list(memory_by_label), [0.0] * len(memory_by_label)
    size = (8.4, 0.9 + 0.5 * len(memory_by_label))
    with figures.drawing(path, size=size, style=figures.PICTURE) as (figure, (axes,)):
        for part in DeviceBytes._fields:
            sizes = [getattr(device, part) / GB for device in memory_by_label.values()]
            axes.barh(labels, sizes, left=left, label=part, height=0.62)
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        axes.axvline(limit / GB, color="black", linewidth=1, linestyle="--")
        axis_limit = max(limit / GB, *(min(end, 2 * limit / GB) for end in left))
        axes.set_xlim(right=1.02 * axis_limit)
        for place, total in enumerate(left):
            if total > 2 * limit / GB:  # beyond the axes
                position = 0.99 * axes.get_xlim()[1], place
                axes.text(
                    *position, f"{total:,.0f} GB", ha="right", va="center", fontsize=8
                )
        axes.invert_yaxis()
        axes.tick_params(axis="y", labelsize=8)
        axes.set(xlabel="GB on the fullest device (dashed: its capacity)", title=title)
        figures.legend(figure, "outside lower center", ncols=4)
