"""Energy, CO2e and cost: the tables of Strubell and Patterson, and GloVe to a loss.

python experiments/carbon.py
python experiments/carbon.py --nomeasure                       the published tables
python experiments/carbon.py --strategies=rotation,server --ranks=4 --target=0.03
python experiments/carbon.py --corpus=newsgroups               5 million words

GloVe runs as separate commands, one after another. The first run of a strategy finds
the number of epochs to the target; the second run, with warm caches, is measured.

Cost: 107 s on 2 cores; with --nomeasure 1 s.
Result: all 26 cells of Strubell's table are recomputed, 20 of them from the hours in
it. GloVe to a loss of 0.037 takes 0.021 Wh by serial, 0.027 by rotation on 2 ranks and
0.032 by synchronous: more ranks save no energy. (Estimated as CPU time times 10 W.)
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from lab import flags, started, writing
from studies.carbon import glove as carbon_glove
from studies.carbon import report as carbon_report
from studies.carbon import rows as carbon_rows
from studies.carbon.claims import CLAIMS

from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.switch("measure", True, "Measurement of GloVe, besides the published tables.")
# mesh is not in the default: its devices of one core take a minute
STRATEGIES = "serial,rotation,hogwild,operation,synchronous,server"
FLAGS.text("strategies", STRATEGIES, "Strategies, separated by commas; all adds mesh.")
FLAGS.integer("ranks", 2, "Number of ranks of all strategies except serial.", 1)
FLAGS.integer("epochs", 6, "Number of epochs of serial, whose loss is the target.", 1)
FLAGS.number("target", 0.0, "Target loss; 0 uses the loss of serial.", 0)
FLAGS.text("corpus", "enwiki", "Corpus, as in glove.py.")
FLAGS.integer("dim", 50, "Dimension of the vectors.", 1)
FLAGS.integer("min_count", 5, "Least frequency of a word of the vocabulary.", 1)
OWN = {"measure", "strategies", "ranks", "epochs", "target"}
OWN |= {"out", "csv", "tensorboard", "track"}


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Recompute the published tables, measure GloVe; return the summary."""
    flags.parse(FLAGS, argv)
    names = strategies() if FLAGS.measure else []
    path = folder.path(FLAGS.out, "carbon")
    tables = writers.tables(carbon_report.COLUMNS, carbon_report.TITLES, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, tables, claims=CLAIMS, conclude=carbon_report.conclude
    ) as writer:
        kept = writing.write_tables(writer, carbon_rows.TABLES, None)
        summary = carbon_rows.totals(*kept.values())
        print(carbon_report.published(summary, kept["patterson"]))
        if names:
            options = started.flag_arguments(FLAGS, leave_out=OWN)
            run = partial(carbon_glove.run_glove, path, FLAGS.ranks, options)
            target = FLAGS.target or None
            glove_rows = partial(carbon_glove.rows, names, FLAGS.ranks, FLAGS.epochs)
            glove = {"glove": lambda arguments, kept: glove_rows(target, run)}
            rows = writing.write_tables(writer, glove, None)["glove"]
            summary |= summarise_glove(rows)
            carbon_report.draw(path / "carbon", rows)
        writer.summary(summary)
    return summary


def strategies() -> list[str]:
    """Return the strategies to measure; raise BadInput if one needs more ranks."""
    from studies.glove import strategies as glove_strategies

    names = flags.names(FLAGS.strategies, glove_strategies.STRATEGIES, "strategies")
    for name in names:
        if not glove_strategies.sizes(name, [FLAGS.ranks]):
            least = glove_strategies.STRATEGIES[name].least
            raise BadInput(
                f"expected at least {least} ranks for {name}, got --ranks="
                f"{FLAGS.ranks}; pass more, or delete it from --strategies"
            )
    return names


def summarise_glove(rows: Sequence[Row]) -> dict[str, Any]:
    """Print the strategy with the least energy; return the summary of all rows."""
    keys = ("kwh", "seconds", "epochs", "co2_kg", "cost_usd")
    summary = {f"glove_{r['strategy']}_{key}": r[key] for r in rows for key in keys}
    summary["glove_target"] = rows[0]["target"]
    if pick := carbon_report.best(rows):
        summary["glove_best"] = pick["strategy"]
        print(
            f"\nleast energy: {pick['strategy']}, ranks: {pick['ranks']}, "
            f"{1e3 * pick['kwh']:.4f} Wh by {pick['source']}, for the whole run with "
            "start-up, evaluation and figures"
        )
    return summary


if __name__ == "__main__":
    flags.run(main)
