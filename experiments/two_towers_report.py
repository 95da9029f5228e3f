"""Trained towers in; rows, a summary and a figure like the paper's figure 3 out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from beside import Ran, apart

from dml.metrics import figures
from dml.metrics.learning import losses
from dml.metrics.writers import Row, scaled
from dml.models.alexnet import TOWERS
from dml.types import Params
from dml.wire.mesh.traffic import collectives, sent

CROSSINGS = ("all-gather", "reduce-scatter")  # the rest sums losses
FIRST = 20  # steps: later ones double what rounding makes different
LINE = 6  # filters, in the figure
SHADES = 2.5  # standard deviations around 0 that are told apart


class Trained(NamedTuple):
    """One network on so many devices."""

    crossings: tuple[int, ...]
    devices: int
    went: Ran
    scores: Mapping[str, Any]
    formula: int  # bytes that two devices send in a step

    @property
    def name(self) -> str:
        return "".join(map(str, self.crossings))


COLUMNS = {
    "layers that cross": (17, "{crossings}"),
    "devices": (7, "{devices}"),
    "accuracy": (8, "{accuracy:.1%}"),
    "loss": (6, "{cross_entropy:.4f}"),
    "KB a step": (9, lambda row: f"{row['formula_bytes'] / 1024:,.0f}"),
    "compiled": (9, lambda row: f"{row['compiled_bytes'] / 1024:,.0f}"),
    "ms a step": (9, scaled("seconds_per_step", 1000, ".1f")),
}


def row(one: Trained) -> Row:
    """Return what the table and metrics.jsonl say of a network."""
    return {
        "crossings": one.name,
        "devices": one.devices,
        "accuracy": one.scores["accuracy"],
        "cross_entropy": one.scores["cross_entropy"],
        "formula_bytes": one.formula if one.devices > 1 else 0,
        "compiled_bytes": crossed(one.went.last.program()),
        "seconds_per_step": one.went.per_step,
        "losses": one.went.losses,
    }


def crossed(program: str) -> float:
    """Return the bytes that the devices of a compiled program send each other."""
    found = [one for one in collectives(program) if one.kind in CROSSINGS]
    return sum(one.size * sent(one) for one in found)


def summed(found: Sequence[Trained]) -> dict[str, Any]:
    """Return a flat summary; the first network is the reference of the second."""
    reference, split, *_ = found
    summary: dict[str, Any] = {
        "loss": split.went.losses[-1],
        "largest_difference": apart(reference.went, split.went),
        "largest_difference_at_first": apart(reference.went, split.went, FIRST),
        "seconds_per_step_one_device": reference.went.per_step,
        "seconds_per_step_two_devices": split.went.per_step,
    }
    for one in found[1:]:
        about = row(one)
        for name in ("accuracy", "formula_bytes", "compiled_bytes"):
            summary[f"{name}_{one.name}"] = about[name]
    return summary


def learned(one: Trained, start: Params) -> np.ndarray:
    """Return the first layer's filters less the noise that they began with: HxWxIxO."""
    first, last = (
        tree["layer_1"]["kernel"] for tree in (start, one.went.last.params())
    )
    return np.asarray(last) - np.asarray(first)


def drawn(path: Path, found: Sequence[Trained], kernel_HxWxIxO: np.ndarray) -> None:
    """Draw the first layer's filters, a tower a panel, and the curves of all losses."""
    names = list(range(1, TOWERS + 1))
    halves = np.split(kernel_HxWxIxO, TOWERS, axis=3)
    curves = {}
    for one in found:
        where = "one device" if one.devices == 1 else f"{one.devices} devices"
        share = f"{one.scores['accuracy']:.1%} right"
        curves[f"cross at {one.name}, {where}: {share}"] = one.went.losses
    with figures.figure(path, (9.6, 3.9)) as figure:
        layout = [[name, "losses"] for name in names]
        panels = figure.subplot_mosaic(layout, width_ratios=(1, 2))
        for name, half in zip(names, halves, strict=True):
            axes = panels[name]
            axes.imshow(tiled(half), vmin=0, vmax=1, cmap="gray", clip_on=False)
            axes.set_axis_off()
            axes.set_title(f"tower {name}: what its filters have learned", fontsize=9)
        losses(panels["losses"], curves)


def tiled(kernel_HxWxIxO: np.ndarray) -> np.ndarray:
    """Return filters as one picture, 0 being grey: with colours if they see three."""
    if kernel_HxWxIxO.shape[2] != 3:
        kernel_HxWxIxO = kernel_HxWxIxO.mean(axis=2, keepdims=True)
    high, wide, colours, count = kernel_HxWxIxO.shape
    shades = 0.5 + kernel_HxWxIxO / (2 * SHADES * kernel_HxWxIxO.std() or 1)
    picture = np.ones((-(-count // LINE) * (high + 1), LINE * (wide + 1), colours))
    for number in range(count):
        y, x = number // LINE * (high + 1), number % LINE * (wide + 1)
        picture[y : y + high, x : x + wide] = np.clip(shades[..., number], 0, 1)
    return picture[:-1, :-1].squeeze()
