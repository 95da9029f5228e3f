"""Figure of memory.py: memory of the fullest device, one stacked bar per plan."""

from collections.abc import Sequence
from pathlib import Path

from dml.figures import style as figures
from dml.models.memory import DeviceBytes, fullest_device
from dml.wire.plans.mesh import Plan
from studies.memory.search import GB, Candidate, Search, mesh_text, options_text


def bars(
    search: Search, pick: Candidate, others: Sequence[Candidate]
) -> dict[str, DeviceBytes]:
    """Return the memory of a plan, of it without each option, and of other plans."""
    plan = pick.plan
    without = {
        "gpipe": plan._replace(schedule="gpipe"),
        "no remat": plan._replace(remat=False),
        "no sequence": plan._replace(sequence=False),
        "no zero": plan._replace(zero=0),
    }
    plans = {label(plan): plan}
    plans |= {f"it, {k}": changed for k, changed in without.items() if changed != plan}
    plans |= {label(plan_of_bar.plan): plan_of_bar.plan for plan_of_bar in others}
    workload = search.known
    return {
        k: fullest_device(workload.shape, workload.causal, plan_of_bar)
        for k, plan_of_bar in plans.items()
    }


def label(plan: Plan) -> str:
    """Return a label of two lines for a plan."""
    microbatches = f"{plan.microbatch} x {plan.microbatches}"
    return f"{mesh_text(plan)}\n{options_text(plan)}, {microbatches}"


def draw(path: Path, drawn: dict[str, DeviceBytes], limit: float, title: str) -> None:
    """Draw the memory of each plan as a bar, and the limit of a device."""
    labels, left = list(drawn), [0.0] * len(drawn)
    size = (8.4, 0.9 + 0.5 * len(drawn))
    with figures.drawing(path, size=size, style=figures.PICTURE) as (figure, (axes,)):
        for part in DeviceBytes._fields:
            sizes = [getattr(one, part) / GB for one in drawn.values()]
            axes.barh(labels, sizes, left=left, label=part, height=0.62)
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        axes.axvline(limit / GB, color="black", linewidth=1, linestyle="--")
        shown = max(limit / GB, *(min(end, 2 * limit / GB) for end in left))
        axes.set_xlim(right=1.02 * shown)
        for place, total in enumerate(left):
            if total > 2 * limit / GB:  # beyond the axes
                at = 0.99 * axes.get_xlim()[1], place
                axes.text(*at, f"{total:,.0f} GB", ha="right", va="center", fontsize=8)
        axes.invert_yaxis()
        axes.tick_params(axis="y", labelsize=8)
        axes.set(xlabel="GB on the fullest device (dashed: what it has)", title=title)
        figures.legend(figure, "outside lower center", ncols=4)
