"""Two ways of a translator in; rows, the wavefront as text, a figure, examples out."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from beside import WHOLE, Ran, Way, alone, apart, axes, laid
from jax.sharding import Mesh

from dml.metrics import figures
from dml.metrics.learning import losses
from dml.metrics.writers import Row, scaled
from dml.models.translator import AXIS, SPECS, ticks, translator, wave, wavefront
from dml.types import Batch, Params

COLUMNS = {
    "way": (14, "{way}"),
    "layers": (6, "{layers}"),
    "ticks": (5, "{ticks}"),
    "gain": (5, "{gain:.2f}"),
    "ms a step": (9, scaled("seconds_per_step", 1000, ".1f")),
    "loss": (7, "{loss:.4f}"),
    "exactly right": (13, "{accuracy:.1%}"),
}
ONE_DEVICE, WAVEFRONT = "one device", "wavefront"
TURNS = 12  # of a race


def row(way: str, layers: int, length: int, ran: Ran, accuracy: float) -> Row:
    """Return what the table and metrics.jsonl say of a way; length is L."""
    count = counted(way, layers, length)
    return {
        "way": way,
        "layers": layers,
        "ticks": count,
        "gain": layers * length / count,
        "seconds_per_step": ran.per_step,
        "loss": ran.losses[-1],
        "accuracy": accuracy,
        "losses": ran.losses,
    }


def counted(way: str, layers: int, length: int) -> int:
    """Return the ticks of one way: one after another, or each layer behind the last."""
    return ticks(layers, length) if way == WAVEFRONT else layers * length


def sketched(layers: int, read: int, written: int) -> list[str]:
    """Return the wavefront as lines: r1 is the first word read, w1 written."""
    names = [f"r{n + 1}" for n in range(read)] + [f"w{n + 1}" for n in range(written)]
    wide = max(map(len, names))
    lines = []
    for number, times in reversed(list(enumerate(wave(layers, read + written), 1))):
        cells = [names[time] if time >= 0 else "·" for time in times]
        lines.append(f"layer {number:<2} " + " ".join(c.rjust(wide) for c in cells))
    return lines


def summed(
    found: Mapping[str, Ran], accuracy: float, layers: int, length: int
) -> dict[str, Any]:
    """Return a flat summary; length is L."""
    one, sweep = found[ONE_DEVICE], found[WAVEFRONT]
    return {
        "loss": sweep.losses[-1],
        "accuracy": accuracy,
        "largest_difference": apart(one, sweep),
        "ticks_one_device": counted(ONE_DEVICE, layers, length),
        "ticks_wavefront": counted(WAVEFRONT, layers, length),
        "seconds_per_step_one_device": one.per_step,
        "seconds_per_step_wavefront": sweep.per_step,
    }


def raced(words: int, width: int, batch: Batch) -> dict[str, Any]:
    """Time two layers on two devices, for which more machines have the cores."""
    model = translator(words, width, layers=2)
    both = list(ways(model.loss, axes(AXIS, jax.devices(), 2)).values())
    one, two = race(both, model.init(jax.random.key(0)), batch)
    length = sum(part.shape[1] for part in batch)
    return {
        "two_layers_gain_counted": 2 * length / ticks(2, length),
        "two_layers_gain_measured": one / two,
        "two_layers_seconds_one_device": one,
        "two_layers_seconds_wavefront": two,
    }


def verdict(summary: Row) -> str:
    return (
        f"two layers on two devices, on {os.cpu_count()} cores: "
        f"{summary['two_layers_gain_measured']:.2f} times as fast as one device; "
        f"{summary['two_layers_gain_counted']:.2f} by ticks"
    )


def ways(loss: Callable[[Params, Batch], Any], line: Mesh) -> dict[str, Way]:
    """Return both ways to a gradient, by name: the loss's, and that of a line."""
    sweep = Way(wavefront(line), line, SPECS)
    return {ONE_DEVICE: alone(loss), WAVEFRONT: sweep}


def race(ways: Sequence[Way], params: Params, batch: Batch) -> list[float]:
    """Return the seconds that each way's gradient takes: medians of turns."""
    calls = []
    for way in ways:
        given = laid(way.axes, way.specs, jax.device_get(params))
        call = jax.jit(way.gradient)
        calls.append((call, given, laid(way.axes, WHOLE, batch)))
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS + 1):
        for times, (call, *given) in zip(took, calls, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(call(*given))
            times.append(time.perf_counter() - start)
    return [float(np.median(times[1:])) for times in took]  # the first compiles


def examples(batch: Batch, found_BxT: np.ndarray, count: int = 4) -> Iterator[str]:
    """Yield lines: what was read, what was written, and whether that is right."""
    for read, right, written in zip(*batch, found_BxT, strict=True):
        said = "right" if (right == written).all() else f"is {sentence(right)}"
        yield f"{sentence(read)} -> {sentence(written)}  {said}"
        count -= 1
        if not count:
            return


def sentence(words: np.ndarray) -> str:
    return " ".join(f"{word:2d}" for word in words)


def drawn(
    path: Path,
    found: Mapping[str, Ran],
    shares: Mapping[int, float],
    shape: tuple[int, int, int],
) -> None:
    """Draw losses, shares of exact translations by steps, and the wavefront.

    Shape is how many layers there are, and words read and written.
    """
    with figures.figure(path, (9.6, 5.6)) as figure:
        panels = figure.subplot_mosaic([["left", "right"], ["below"] * 2])
        left, right, below = panels["left"], panels["right"], panels["below"]
        losses(left, {name: ran.losses for name, ran in found.items()})
        right.plot(list(shares), list(shares.values()), "o-")
        right.set(xlabel="step", ylabel="held out, exactly right", ylim=(0, 1))
        right.yaxis.set_major_formatter("{x:.0%}")
        below.grid(False)
        sweep(below, *shape)


def sweep(panel: Any, layers: int, read: int, written: int) -> None:
    """Draw which time each layer computes in each tick; who waits is white."""
    from matplotlib.patches import Rectangle

    times_KxN = wave(layers, read + written)
    for (layer, tick), at in np.ndenumerate(times_KxN):
        if at < 0:
            continue
        colour = "#3b6ea5" if at < read else "#cc7a29"
        panel.add_patch(
            Rectangle((tick, layer + 0.5), 0.94, 0.94, color=colour, clip_on=False)
        )
        said = at + 1 if at < read else at - read + 1
        look = {"ha": "center", "va": "center", "fontsize": 7, "color": "white"}
        panel.text(tick + 0.47, layer + 0.97, str(said), **look)
    panel.set(
        xlim=(0, times_KxN.shape[1]),
        ylim=(0.4, layers + 0.6),
        xlabel="tick",
        ylabel="layer",
        yticks=range(1, layers + 1),
        title=f"{layers} layers x {read + written} times (read, then written) "
        f"in {times_KxN.shape[1]} ticks",
    )
