"""Costs of GloVe until its loss is low enough, by training strategy.

A strategy → runs of glove.py as commands → the row of the last. The first run may have
to count the corpus and to compile, and energy is of a whole process: it is no row.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lab import started

from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import BadInput

METERED = {  # columns of a row, by their names in a summary
    "energy_kwh": "kwh",
    "co2_kg": "co2_kg",
    "cost_usd": "cost_usd",
    "energy_source": "source",
}
MOST = 4  # times the epochs with which a way begins: then the target is out of reach
Runner = Callable[[str, int], Run]  # a way and its epochs in


def rows(
    ways: Sequence[str], ranks: int, epochs: int, target: float | None, run: Runner
) -> Iterator[Row]:
    """Yield what each way takes to a target; none given, it is serial's after epochs.

    Who shares out the work mostly needs an epoch more, and so begins with it.
    """
    known: dict[str, Run] = {}
    if target is None:
        known["serial"] = run("serial", epochs)
        target = known["serial"].rows[-1]["loss"]
    for way in ways:
        first = known.get(way) or run(way, epochs + 1)
        found = run_to_target(partial(run, way), first, target)
        size = 1 if way == "serial" else ranks
        yield {"strategy": way, "ranks": size, "target": target} | cost(found)


def run_to_target(run: Callable[[int], Run], found: Run, target: float) -> Run | None:
    """Return a run that ends where it reaches the target; None if that is too far.

    What was found tells after which epoch; another run ends there. Without locks that
    one may come out otherwise: then the next has an epoch more.
    """
    epochs = len(found.rows)
    most = MOST * epochs
    while not (count := epochs_to_target(found, target)):
        if epochs == most:
            return None
        epochs = min(2 * epochs, most)
        found = run(epochs)
    again = (run(epochs) for epochs in range(count, most + 1))
    return next((one for one in again if epochs_to_target(one, target)), None)


def epochs_to_target(run: Run, target: float) -> int:
    """Return after how many epochs the loss was low enough; 0 if it never was."""
    numbers = (n for n, row in enumerate(run.rows, 1) if row["loss"] <= target)
    return next(numbers, 0)


def cost(run: Run | None) -> Row:
    """Return the seconds of training, and the energy of the whole run."""
    if run is None:
        return dict.fromkeys(("epochs", "seconds", *METERED.values()))
    missing = [name for name in METERED if name not in run.summary]
    if missing:
        raise BadInput(
            f"expected {', '.join(METERED)} in {run.path / 'summary.json'}, got no "
            f"{', '.join(missing)}; run an experiments/glove.py that meters its energy"
        )
    spent = {column: run.summary[name] for name, column in METERED.items()}
    return {"epochs": len(run.rows), "seconds": run.summary["seconds"], **spent}


def run_glove(
    path: Path, ranks: int, given: Sequence[str], way: str, epochs: int
) -> Run:
    """Run glove.py; return its run folder."""
    size = 0 if way == "serial" else ranks
    own = [*given, f"--strategy={way}", f"--epochs={epochs}", "--timeline=0"]
    name, out = f"{way} of {epochs} epochs", path / f"{way}-{epochs}"
    return started.run(name, size, "glove.py", own, out)
