"""All training strategies of GloVe on one corpus: a table and a figure.

python experiments/glove_strategies.py --corpus=newsgroups
python experiments/glove_strategies.py --reference=GloVe/build    with the C program

Each row is a run of `mpirun -n <ranks> python experiments/glove.py ...`, one after
another. Equal hashes mean bit-identical trained vectors.

Cost: 15 minutes with --epochs=3, most of it for 8 processes of mesh on 2 cores.
Result: serial, rotation on any number of ranks and hogwild on one rank are
bit-identical; so are operation and synchronous on one rank. All reach the loss of the
C program.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, started, writing
from lab.claims import grouped
from studies.glove import counting, strategies
from studies.glove import flags as glove_flags
from studies.glove import reference as glove_reference
from studies.glove.claims import CLAIMS

from dml.figures import style as figures
from dml.runs import folder, writers
from dml.runs.results import Run

FLAGS = flags.define("seed")
counting.define(FLAGS)
glove_flags.define(FLAGS, strategies.STRATEGIES)
FLAGS.set_default("dim", 48)  # divisible by 1, 2, 4 and 8 ranks
FLAGS.text("ranks", "1,2,4,8", "Numbers of ranks.")
FLAGS.text("ways", "all", "Strategies, or all.")
FLAGS.text("reference", None, "Folder with the built C program.")
OWN = ("out", "ranks", "ways", "reference", "strategy", "help")


COLUMNS: writers.Columns = {
    "strategy": (12, "{strategy}"),
    "ranks": (5, "{ranks:d}"),
    "loss": (8, "{loss:.5f}"),
    "analogies": (9, "{analogy_accuracy:.4f}"),
    "M records/s": (11, writers.scaled_cell("records_per_second", 1e-6, ".1f")),
    "seconds": (8, "{seconds:,.1f}"),
    "sha256": (8, "{vectors_sha256:.8}"),
    "WordSim": (7, "{wordsim353:.3f}"),
    "SimLex": (6, "{simlex999:.3f}"),
    "elements sent": (16, "{words_sent:,d}"),
}


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Run every strategy on every number of ranks; return the rows."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "glove_strategies")
    ranks = [flags.positive(word, "ranks") for word in FLAGS.ranks.split(",")]
    names = flags.names(FLAGS.ways, strategies.STRATEGIES, "ways")
    options = started.flag_arguments(FLAGS, leave_out=OWN, add=("dim",))
    cells = [
        partial(ours, path, name, size, options)
        for name in names
        for size in strategies.sizes(name, ranks)
    ]
    if FLAGS.reference:
        glove_reference.check(Path(FLAGS.reference))  # raises before the first run
        cells += [
            partial(glove_reference.run, Path(FLAGS.reference), path, size, FLAGS)
            for size in ranks
        ]
    rows = []
    table = writers.table(COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=conclude
    ) as writer:
        for cell in cells:
            rows.append(cell())
            writer.row(rows[-1])
        best = max(rows, key=lambda row: row["records_per_second"])
        writer.summary({f"best_{key}": value for key, value in best.items()})
    chart(path / "strategies", rows)
    return rows


def ours(path: Path, strategy: str, size: int, options: list[str]) -> dict[str, Any]:
    """Train with one strategy on `size` ranks; return the summary."""
    name = f"{strategy} on {size} ranks"
    options = [*options, f"--strategy={strategy}"]
    run = started.run(name, size, "glove.py", options, path / f"{strategy}-{size}")
    return {"strategy": strategy, "ranks": size, **run.summary}


def conclude(run: Run) -> str:
    """Return the fastest cell, and the number of cells with equal bits."""
    best = max(run.rows, key=lambda row: row["records_per_second"])
    cells = max(grouped(run.rows, "vectors_sha256").values(), key=len)
    names = ", ".join(f"{row['strategy']} on {row['ranks']}" for row in cells)
    return (
        f"{best['strategy']} on {best['ranks']} ranks is fastest "
        f"({best['records_per_second'] / 1e6:.1f} M records/s); equal bits: {names}."
    )


def chart(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw records per second by the number of ranks, a line per strategy."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        xs, ys = series.setdefault(row["strategy"], ([], []))
        xs.append(row["ranks"])
        ys.append(row["records_per_second"] / 1e6)
    dashed = [glove_reference.NAME]
    figures.curves(path, series, x="ranks", y="million records/s", dashed=dashed)


if __name__ == "__main__":
    flags.run(main)
