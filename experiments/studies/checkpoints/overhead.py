"""Measured overhead of saves: steps with a save relative to steps without."""

import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.models.networks.mlp import mlp
from dml.runs import states
from dml.runs.saves import Saves
from dml.runs.snapshots import snapshot
from dml.runs.writers import Row
from dml.strategies.serial import serial
from dml.task import Task
from dml.types import Batch, Step
from dml.update.dense import make
from dml.wire.comm.mpi import world

LAYERS, CLASSES = 3, 10
WARM_UP = 20  # steps before each pair
LEAST_STEPS = 3  # of a pair
MODES = {"synchronous": False, "background": True}  # whether writes are in a thread


class Network(NamedTuple):
    """Sizes of a perceptron that is trained by Adam.

    Attributes:
      width: Units of each layer.
      batch: Examples of a minibatch.
      seed: Random seed.
    """

    width: int
    batch: int
    seed: int


class Spent(NamedTuple):
    """Seconds, processor seconds of all threads, and number of steps."""

    seconds: float
    processor: float
    steps: int


class Watch:
    """Measures steps from its start."""

    def __init__(self) -> None:
        self.seconds, self.processor = time.perf_counter(), time.process_time()

    def spent(self, steps: int) -> Spent:
        seconds = time.perf_counter() - self.seconds
        return Spent(seconds, time.process_time() - self.processor, steps)


def training(network: Network) -> Iterator[Step]:
    """Yield the steps of an endless training on one rank."""
    width, batch, seed = network
    random = np.random.default_rng(seed)
    inputs_BxW = random.normal(size=(4 * batch, width)).astype(np.float32)
    examples = Batch(inputs_BxW, random.integers(0, CLASSES, 4 * batch, np.int32))
    model = mlp((width,), CLASSES, (width,) * LAYERS)
    problem = Task(model, examples, examples).problem(seed)
    order = minibatches(4 * batch, batch, seed)
    return serial(problem, order, make("adam", 1e-3), comm=world(), timer=Timer())


def rows(network: Network, share: float, repeats: int, folder: Path) -> Iterator[Row]:
    """Yield a row per mode: medians over pairs of steps with and without a save.

    A pair consists of the steps during a save, and of steps before and after it. The
    interval is that of CheckFreq's rule, which knows only the steps before. `error` is
    the standard error of the overhead.

    Args:
      network: Trained network.
      share: Largest share of the time that saves take, which sets their interval.
      repeats: Number of pairs of each mode, in turns.
      folder: Folder of the checkpoints.
    """
    steps = training(network)
    last = [next(steps)]
    buffers: dict[str, np.ndarray] = {}

    def save() -> Any:
        step = last[0]
        copied = snapshot({"params": step.params(), "state": step.state()}, buffers)
        return partial(states.write, folder, step.number, copied, {}, 1)

    def plain(count: int, source: Iterator[Step]) -> Spent:
        watch = Watch()
        for last[0] in itertools.islice(source, count):
            pass
        return watch.spent(count)

    def saved(saves: Saves, source: Iterator[Step]) -> Spent:
        watch, count = Watch(), 0
        saves.save(save)
        while saves.writing or count < LEAST_STEPS:
            last[0], count = next(source), count + 1
        return watch.spent(count)

    plain(WARM_UP, steps)
    save()()  # imports the packages of the writes
    by_mode: dict[str, list[Row]] = {name: [] for name in MODES}
    started = {name: Saves(0, share, threaded) for name, threaded in MODES.items()}
    sources = {name: saves.timed(steps) for name, saves in started.items()}
    for _ in range(repeats):
        for name, saves in started.items():
            before = plain(WARM_UP, sources[name])
            with saves:
                busy = saved(saves, sources[name])
            after = plain(WARM_UP, steps)
            by_mode[name].append(pair(saves, busy, before, after))
    nbytes = sum(buffer.nbytes for buffer in buffers.values())
    for name, pairs in by_mode.items():
        medians: Row = {
            key: statistics.median(row[key] for row in pairs) for key in pairs[0]
        }
        added = np.array([row["added"] for row in pairs])
        medians["overhead"] = medians["added"] / medians["work"]
        medians["error"] = standard_error(added) / medians["work"]
        yield {"mode": name, "megabytes": nbytes / 1e6, "pairs": repeats} | medians


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of a median by the quartiles, as of normal values."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(1.2533 * (high - low) / 1.349 / len(values) ** 0.5)


def pair(saves: Saves, busy: Spent, before: Spent, after: Spent) -> Row:
    """Return the cost of a save relative to the steps before it and after it."""
    idle = (before.seconds + after.seconds) / (before.steps + after.steps)
    processor = (before.processor + after.processor) / (before.steps + after.steps)
    return {
        "step": idle,
        "stall": saves.stall,
        "write": saves.write_seconds,  # 0 if it is a part of the stall
        "estimated": saves.cost,
        "added": busy.seconds - busy.steps * idle,
        "added_processor": busy.processor - busy.steps * processor,
        "interval": saves.stall + saves.wait,
        "work": saves.stall + saves.wait - saves.cost,  # without saves
    }
