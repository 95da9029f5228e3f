"""Energy and cost of GloVe up to a target loss, by training strategy.

Each strategy runs glove.py as a subprocess several times; the last run gives the row.
The first run is excluded, since its energy includes preprocessing and compilation.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lab import started
from lab.progress import PROGRESS

from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import BadInput

ENERGY_COLUMNS = {  # key of a summary: column
    "energy_kwh": "kwh",
    "co2_kg": "co2_kg",
    "cost_usd": "cost_usd",
    "energy_source": "source",
}
MAX_EPOCH_FACTOR = 4  # epochs of a run are at most this multiple of the first run's
Runner = Callable[[str, int], Run]  # strategy, epochs -> run


def rows(
    strategies: Sequence[str],
    ranks: int,
    epochs: int,
    target: float | None,
    run: Runner,
) -> Iterator[Row]:
    """Yield the cost of each strategy to a target loss.

    Args:
        strategies: names of strategies.
        ranks: number of ranks of all strategies but serial.
        epochs: epochs of the first run; parallel strategies start with one more.
        target: target loss; None: the loss of serial after `epochs`.
        run: starts a run.
    """
    runs: dict[str, Run] = {}
    if target is None:
        runs["serial"] = run("serial", epochs)
        target = runs["serial"].rows[-1]["loss"]
    for strategy in PROGRESS.each(strategies):
        first = runs.get(strategy) or run(strategy, epochs + 1)
        result = run_to_target(partial(run, strategy), first, target)
        size = 1 if strategy == "serial" else ranks
        yield {"strategy": strategy, "ranks": size, "target": target} | cost(result)


def run_to_target(run: Callable[[int], Run], first: Run, target: float) -> Run | None:
    """Return a run whose last epoch reaches the target; None if none does.

    The first run determines the number of epochs of the second. Lock-free runs differ,
    so a run may miss the target; then the next run has one more epoch.
    """
    epochs = len(first.rows)
    maximum = MAX_EPOCH_FACTOR * epochs
    while not (count := epochs_to_target(first, target)):
        if epochs == maximum:
            return None
        epochs = min(2 * epochs, maximum)
        first = run(epochs)
    later = (run(epochs) for epochs in range(count, maximum + 1))
    return next(
        (candidate for candidate in later if epochs_to_target(candidate, target)), None
    )


def epochs_to_target(run: Run, target: float) -> int:
    """Return the number of epochs to the target loss; 0 if not reached."""
    epochs = (n for n, row in enumerate(run.rows, 1) if row["loss"] <= target)
    return next(epochs, 0)


def cost(run: Run | None) -> Row:
    """Return the columns of epochs, seconds and energy; None where run is None."""
    if run is None:
        return dict.fromkeys(("epochs", "seconds", *ENERGY_COLUMNS.values()))
    missing = [name for name in ENERGY_COLUMNS if name not in run.summary]
    if missing:
        raise BadInput(
            f"expected {', '.join(ENERGY_COLUMNS)} in {run.path / 'summary.json'}, "
            f"got no {', '.join(missing)}; run the current "
            "experiments/glove.py, which records energy"
        )
    spent = {column: run.summary[name] for name, column in ENERGY_COLUMNS.items()}
    return {"epochs": len(run.rows), "seconds": run.summary["seconds"], **spent}


def run_glove(
    path: Path, ranks: int, arguments: Sequence[str], strategy: str, epochs: int
) -> Run:
    """Run glove.py; return its run folder."""
    size = 0 if strategy == "serial" else ranks
    flags = [*arguments, f"--strategy={strategy}", f"--epochs={epochs}", "--timeline=0"]
    name, out = f"{strategy} of {epochs} epochs", path / f"{strategy}-{epochs}"
    return started.run(name, size, "glove.py", flags, out)
