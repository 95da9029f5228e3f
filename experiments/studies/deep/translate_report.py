"""Rows, summary, figure, timing and printed examples of translate.py."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from dml.figures import style as figures
from dml.figures.learning import losses
from dml.metrics.alternate import alternate
from dml.models.model_problem import model_problem
from dml.models.networks.translator import (
    AXIS,
    SPECS,
    ticks,
    translator,
    wave,
    wavefront,
)
from dml.runs.results import Run
from dml.runs.writers import Row, scaled_cell
from dml.strategies.sharded import placed
from dml.train import Curve
from dml.types import Batch, Problem
from studies.deep.comparison import (
    Division,
    largest_difference,
    median_step_seconds,
    mesh,
    one_device,
)

COLUMNS = {
    "strategy": (14, "{strategy}"),
    "layers": (6, "{layers}"),
    "ticks": (5, "{ticks}"),
    "gain": (5, "{gain:.2f}"),
    "ms per step": (11, scaled_cell("seconds_per_step", 1000, ".1f")),
    "loss": (7, "{loss:.4f}"),
    "exactly right": (13, "{accuracy:.1%}"),
}
ONE_DEVICE, WAVEFRONT = "one device", "wavefront"
TIMED_CALLS = 12  # timed calls of each division


def row(name: str, layers: int, length: int, result: Curve) -> Row:
    """Return the row of a division; `length` counts the words read and written."""
    count = tick_count(name, layers, length)
    return {
        "strategy": name,
        "layers": layers,
        "ticks": count,
        "gain": layers * length / count,
        "seconds_per_step": median_step_seconds(result),
        "loss": result.losses[-1],
        "accuracy": result.summary["accuracy"],
        "losses": result.losses,
    }


def tick_count(name: str, layers: int, length: int) -> int:
    """Return the ticks of all layers, one after another or as a wavefront."""
    return ticks(layers, length) if name == WAVEFRONT else layers * length


def wavefront_lines(layers: int, read: int, written: int) -> list[str]:
    """Return the wavefront as lines; r1 is the first word read, w1 is written first."""
    names = [f"r{n + 1}" for n in range(read)] + [f"w{n + 1}" for n in range(written)]
    width_of_name = max(map(len, names))
    lines = []
    for number, times in reversed(list(enumerate(wave(layers, read + written), 1))):
        cells = [names[time] if time >= 0 else "·" for time in times]
        lines.append(
            f"layer {number:<2} " + " ".join(c.rjust(width_of_name) for c in cells)
        )
    return lines


def summary(results: Mapping[str, Curve], layers: int, length: int) -> dict[str, Any]:
    """Return a flat summary; `length` is the number of words read and written."""
    serial, wavefront_result = results[ONE_DEVICE], results[WAVEFRONT]
    return {
        "loss": wavefront_result.losses[-1],
        "accuracy": wavefront_result.summary["accuracy"],
        "largest_difference": largest_difference(
            serial.losses, wavefront_result.losses
        ),
        "ticks_one_device": tick_count(ONE_DEVICE, layers, length),
        "ticks_wavefront": tick_count(WAVEFRONT, layers, length),
        "seconds_per_step_one_device": median_step_seconds(serial),
        "seconds_per_step_wavefront": median_step_seconds(wavefront_result),
    }


def time_two_layers(words: int, width: int, batch: Batch) -> dict[str, Any]:
    """Time two layers on two devices, for which most machines have enough cores."""
    model = translator(words, width, layers=2)
    params = model.init(jax.random.key(0))
    problem = model_problem(
        model, params, examples=len(batch.targets), take=lambda indices: batch
    )
    both = divisions(problem, mesh(AXIS, jax.devices(), 2))
    one, two = time_alternating(list(both.values()), batch)
    length = sum(part.shape[1] for part in batch)
    return {
        "two_layers_gain_counted": 2 * length / ticks(2, length),
        "two_layers_gain_measured": one / two,
        "two_layers_seconds_one_device": one,
        "two_layers_seconds_wavefront": two,
    }


def conclude(run: Run) -> str:
    """Return the result in one sentence."""
    summary = run.summary
    return (
        f"{summary['accuracy']:.1%} of the words correct; a layer per device takes "
        f"{summary['ticks_wavefront']} ticks instead of {summary['ticks_one_device']}, "
        f"and losses differ by at most {summary['largest_difference']:.1e}."
    )


def verdict(summary: Row) -> str:
    return (
        f"two layers on two devices, on {os.cpu_count()} cores: "
        f"{summary['two_layers_gain_measured']:.2f} times as fast as one device; "
        f"{summary['two_layers_gain_counted']:.2f} by ticks"
    )


def divisions(problem: Problem, line: Mesh) -> dict[str, Division]:
    """Return the problem on one device, and with one layer per device of a mesh."""
    divided = problem._replace(gradient=wavefront(line))
    return {ONE_DEVICE: one_device(problem), WAVEFRONT: Division(divided, line, SPECS)}


def time_alternating(divisions: Sequence[Division], batch: Batch) -> list[float]:
    """Return the median seconds of each division's gradient; calls alternate."""

    def call(gradient: Callable[..., Any], *arguments: Any) -> None:
        jax.block_until_ready(gradient(*arguments))

    calls = {}
    for number, (problem, axes, specs) in enumerate(divisions):
        params = placed(jax.device_get(problem.params), axes, specs)
        gradient = jax.jit(problem.gradient)
        calls[number] = partial(call, gradient, params, placed(batch, axes))
    seconds = alternate(calls, TIMED_CALLS)
    return [float(np.median(times)) for times in seconds.values()]


def examples(
    batch: Batch, translations_BxT: np.ndarray, count: int = 4
) -> Iterator[str]:
    """Yield lines: a sentence, its translation, and the correct one if it differs."""
    for read, expected, written in list(zip(*batch, translations_BxT, strict=True))[
        :count
    ]:
        equal = (expected == written).all()
        verdict = "correct" if equal else f"correct: {sentence(expected)}"
        yield f"{sentence(read)} -> {sentence(written)}  {verdict}"


def sentence(words: np.ndarray) -> str:
    return " ".join(f"{word:2d}" for word in words)


def draw(path: Path, results: Mapping[str, Curve], shape: tuple[int, int, int]) -> None:
    """Draw losses, shares of exact translations by steps, and the wavefront.

    shape: numbers of layers, of words read, and of words written.
    """
    *_, last = results.values()
    evaluated = [row for row in last.rows if "accuracy" in row]
    if evaluated[-1:] != last.rows[-1:]:
        evaluated.append(last.rows[-1] | last.summary)
    with figures.figure(path, (9.6, 5.6)) as figure:
        panels = figure.subplot_mosaic([["left", "right"], ["below"] * 2])
        left, right, below = panels["left"], panels["right"], panels["below"]
        losses(left, {name: result.losses for name, result in results.items()})
        steps, shares = (
            [row[key] for row in evaluated] for key in ("step", "accuracy")
        )
        right.plot(steps, shares, "o-")
        right.set(xlabel="step", ylabel="held out, exactly right", ylim=(0, 1))
        right.yaxis.set_major_formatter("{x:.0%}")
        below.grid(False)
        sweep(below, *shape)


def sweep(panel: Any, layers: int, read: int, written: int) -> None:
    """Draw the word that each layer processes in each tick; idle layers are white."""
    from matplotlib.patches import Rectangle

    times_KxN = wave(layers, read + written)
    for (layer, tick), at in np.ndenumerate(times_KxN):
        if at < 0:
            continue
        colour = "#3b6ea5" if at < read else "#cc7a29"
        panel.add_patch(
            Rectangle((tick, layer + 0.5), 0.94, 0.94, color=colour, clip_on=False)
        )
        label = at + 1 if at < read else at - read + 1
        look = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
        panel.text(tick + 0.47, layer + 0.97, str(label), **look)
    panel.set(
        xlim=(0, times_KxN.shape[1]),
        ylim=(0.4, layers + 0.6),
        xlabel="tick",
        ylabel="layer",
        yticks=range(1, layers + 1),
        title=f"{layers} layers x {read + written} words (read, then written) "
        f"in {times_KxN.shape[1]} ticks",
    )
