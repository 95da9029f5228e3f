"""All training strategies of GloVe on one corpus: a table and a figure.

python experiments/glove_strategies.py --corpus=newsgroups
python experiments/glove_strategies.py --reference=GloVe/build    and the C program

Cells are runs of `mpirun -n <ranks> python experiments/glove.py …`, one after another;
the hash shows which of them end with the same bits.
Cost: a quarter of an hour with --epochs=3, most of it 8 processes of mesh on 2 cores.
Result: serial, rotation on any number of ranks and hogwild on one have equal bits, as
operation and synchronous on one have. All reach the C program's loss.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import flags, started, writing
from studies.glove import counting, strategies
from studies.glove import flags as glove_flags
from studies.glove import reference as glove_reference
from studies.glove.claims import CLAIMS

from dml.figures import style as figures
from dml.runs import folder as runs
from dml.runs import writers

FLAGS = flags.define("seed")
counting.define(FLAGS)
glove_flags.define(FLAGS, strategies.STRATEGIES)
FLAGS.set_default("dim", 48)  # which 1, 2, 4 and 8 ranks can share
FLAGS.text("ranks", "1,2,4,8", "Numbers of ranks.")
FLAGS.text("ways", "all", "Ways of training.")
FLAGS.text("reference", None, "Folder with the built C program.")
OWN = ("out", "ranks", "ways", "reference", "strategy", "help")


COLUMNS: writers.Columns = {
    "way": (12, "{strategy}"),
    "ranks": (5, "{ranks:d}"),
    "loss": (8, "{loss:.5f}"),
    "analogies": (9, "{analogy_accuracy:.4f}"),
    "WordSim": (7, "{wordsim353:.3f}"),
    "SimLex": (6, "{simlex999:.3f}"),
    "M records/s": (11, writers.scaled("records_per_second", 1e-6, ".1f")),
    "seconds": (8, "{seconds:,.1f}"),
    "words sent": (16, "{words_sent:,d}"),
    "sha256": (8, "{vectors_sha256:.8}"),
}


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Run every cell; return the rows."""
    flags.parse(FLAGS, argv)
    path = runs.path(FLAGS.out, "glove_strategies")
    ranks = [flags.positive(word, "ranks") for word in FLAGS.ranks.split(",")]
    ways = flags.names(FLAGS.ways, strategies.STRATEGIES, "ways")
    given = started.given(FLAGS, leave_out=OWN, always=("dim",))
    cells = [
        partial(ours, path, way, size, given)
        for way in ways
        for size in strategies.sizes(way, ranks)
    ]
    if FLAGS.reference:
        glove_reference.check(Path(FLAGS.reference))  # now, not after all other cells
        cells += [
            partial(glove_reference.run, Path(FLAGS.reference), path, size, FLAGS)
            for size in ranks
        ]
    rows = []
    table = writers.table(COLUMNS)
    with writing.first(path, FLAGS, None, table, claims=CLAIMS) as writer:
        for cell in cells:
            rows.append(cell())
            writer.row(rows[-1])
        best = max(rows, key=lambda row: row["records_per_second"])
        writer.summary({f"best_{key}": value for key, value in best.items()})
    chart(path / "strategies", rows)
    return rows


def ours(path: Path, way: str, size: int, given: list[str]) -> dict[str, Any]:
    """Run one cell; return its summary."""
    name, own = f"{way} on {size} ranks", [*given, f"--strategy={way}"]
    run = started.run(name, size, "glove.py", own, path / f"{way}-{size}")
    return {"strategy": way, "ranks": size, **run.summary}


def chart(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw records a second by ranks, a line a way."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        xs, ys = series.setdefault(row["strategy"], ([], []))
        xs.append(row["ranks"])
        ys.append(row["records_per_second"] / 1e6)
    dashed = [glove_reference.NAME]
    figures.curves(path, series, x="ranks", y="million records/s", dashed=dashed)


if __name__ == "__main__":
    flags.run(main)
