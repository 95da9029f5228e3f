"""Energy, CO2e and dollars: Strubell's table, Patterson's, and GloVe's to a loss.

python experiments/carbon.py
python experiments/carbon.py --nomeasure                       the published tables
python experiments/carbon.py --strategies=rotation,server --ranks=4 --target=0.03
python experiments/carbon.py --corpus=newsgroups               5 million words

GloVe runs as commands, one after another. A first run of each way tells the epochs that
it needs; the one that counts has no more, and finds all counted and compiled.
Cost: 107 s on 2 cores; with --nomeasure 1 s.
Result: all 26 cells of Strubell follow, 20 of them from the hours in the table. GloVe's
loss of 0.037 takes serial 0.021 Wh, rotation on 2 ranks 0.027, synchronous 0.032: more
ranks save no energy. (CPU time x 10 W: estimated.)
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lab import flags, started, writing
from studies.carbon import glove as carbon_glove
from studies.carbon import report as carbon_report
from studies.carbon import rows as carbon_rows
from studies.carbon.claims import CLAIMS

from dml.runs import folder as runs
from dml.runs import writers
from dml.runs.writers import Row
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.switch("measure", True, "Meter GloVe, too.")
# mesh is left out: its devices, of one core each, take a minute
WAYS = "serial,rotation,hogwild,operation,synchronous,server"
FLAGS.text("strategies", WAYS, "Ways of training, with commas between; all: mesh, too.")
FLAGS.integer("ranks", 2, "Ranks of all strategies but serial.", 1)
FLAGS.integer("epochs", 6, "Epochs of serial; its loss after them is the target.", 1)
FLAGS.number("target", 0.0, "Loss to reach; 0: serial's.", 0)
FLAGS.text("corpus", "enwiki", "Corpus, as of glove.py.")
FLAGS.integer("dim", 50, "Numbers of a vector.", 1)
FLAGS.integer("min_count", 5, "Least times that a word of the vocabulary occurs.", 1)
OWN = {"measure", "strategies", "ranks", "epochs", "target"}
OWN |= {"out", "csv", "tensorboard"}


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Recompute the published tables, measure GloVe; return the summary."""
    flags.parse(FLAGS, argv)
    ways = strategies() if FLAGS.measure else []
    path = runs.path(FLAGS.out, "carbon")
    tables = writers.tables(carbon_report.COLUMNS, carbon_report.TITLES)
    with writing.first(path, FLAGS, None, tables, claims=CLAIMS) as writer:
        kept = writing.tabulated(writer, carbon_rows.TABLES, None)
        summary = carbon_rows.totals(*kept.values())
        print(carbon_report.published(summary, kept["patterson"]))
        if ways:
            given = started.given(FLAGS, leave_out=OWN)
            run = partial(carbon_glove.run_glove, path, FLAGS.ranks, given)
            target = FLAGS.target or None
            metered = partial(carbon_glove.rows, ways, FLAGS.ranks, FLAGS.epochs)
            glove = {"glove": lambda plan, kept: metered(target, run)}
            found = writing.tabulated(writer, glove, None)["glove"]
            summary |= measured(found)
            carbon_report.draw(path / "carbon", found)
        writer.summary(summary)
    return summary


def strategies() -> list[str]:
    """Return the strategies to measure; raise where one needs more ranks."""
    from studies.glove import strategies as glove_strategies

    ways = flags.names(FLAGS.strategies, glove_strategies.STRATEGIES, "strategies")
    for way in ways:
        if not glove_strategies.sizes(way, [FLAGS.ranks]):
            raise BadInput(
                f"expected at least {glove_strategies.FEWEST[way]} ranks of {way}, got "
                f"--ranks={FLAGS.ranks}; pass more, or leave {way} out of --strategies"
            )
    return ways


def measured(rows: Sequence[Row]) -> dict[str, Any]:
    """Print the strategy of least energy; return the summary of all."""
    keys = ("kwh", "seconds", "epochs", "co2_kg", "cost_usd")
    summary = {f"glove_{r['strategy']}_{key}": r[key] for r in rows for key in keys}
    summary["glove_target"] = rows[0]["target"]
    if pick := carbon_report.best(rows):
        summary["glove_best"] = pick["strategy"]
        print(
            f"\nleast energy: {pick['strategy']}, ranks: {pick['ranks']}, "
            f"{1e3 * pick['kwh']:.4f} Wh by {pick['source']}; all of a run counts, "
            "its start, evaluation and figures, too"
        )
    return summary


if __name__ == "__main__":
    flags.run(main)
