"""Boosting on a wide sparse table: rows, columns and grids of up to 256 virtual cores.

python experiments/boosting_splits.py                          10^5 x 10^6 (Zipf's law)
python experiments/boosting_splits.py --rows=10000 --columns=100000 --grids=2x1,1x256
python experiments/boosting_splits.py --alpha=2e-5 --p=1,16,256         over Ethernet

Trees on virtual ranks have one hash for every grid, and send the words of the formula.
Computation takes the time of a stated core, messages that of a network. Two more tables
have the accuracy with few bins, and with few columns whose sums a vote elects.

Cost: 4 minutes of one core, and 4 GB.
Result: on 256 cores, columns send 1,410 times fewer words than rows. A tree is 130
times faster than on one core with columns, 25 times with a grid, not faster with rows.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lab import flags, writing
from studies.boosting import accuracy, splits, splits_report
from studies.boosting.claims import CLAIMS

from dml.boosting import Settings
from dml.boosting.messages import shape
from dml.data.tables.generated import zipf
from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.types import BadInput
from dml.wire.costs.allreduce import Rates

FLAGS = flags.define("seed")
FLAGS.integer("rows", 100_000, "Number of rows.", 10, 10**7)
FLAGS.integer("columns", 1_000_000, "Number of columns.", 10, 10**7)
FLAGS.integer("nonzeros", 100, "Number of draws of a row.", 1, 10**4)
FLAGS.integer("leaves", 31, "Largest number of leaves of a tree.", 2, 1 << 16)
FLAGS.text("p", "1,2,4,8,16,32,64,128,256", "Numbers of cores of the formulas.")
FLAGS.text("grids", "2x1,4x4,1x256", "Grids RxC of virtual ranks; rows: Rx1.")
FLAGS.number("alpha", 1e-6, "Seconds of a message.", 1e-12, 1)
FLAGS.number("beta", 1e-9, "Seconds of a byte sent.", 1e-15, 1)
FLAGS.number("gamma", 1e-10, "Seconds of a byte reduced.", 0, 1)
FLAGS.number("row_ns", 8.0, "Nanoseconds of a core for a row of a node.", 0, 1e6)
FLAGS.number("value_ns", 5.0, "Nanoseconds for a stored value.", 0, 1e6)
FLAGS.number("slot_ns", 15.0, "Nanoseconds for a slot that is summed.", 0, 1e6)
FLAGS.number("search_ns", 44.0, "Nanoseconds for a slot that is searched.", 0, 1e6)
FLAGS.integer("score_rows", 20_000, "Rows of the tables of accuracy.", 100, 10**6)
FLAGS.integer("score_columns", 2_000, "Columns of the table of votes.", 64, 10**6)
FLAGS.integer("score_rounds", 50, "Rounds of the tables of accuracy.", 10, 10**4)


def task() -> splits.Task:
    """Return the table and the machine by the flags."""
    x, y = zipf(FLAGS.rows, FLAGS.columns, FLAGS.nonzeros, FLAGS.seed)
    given = Settings(loss="logistic", rounds=2, leaves=FLAGS.leaves)
    names = "row_ns", "value_ns", "slot_ns", "search_ns"
    core = splits.Core(*(1e-9 * FLAGS[name].value for name in names))
    rates = Rates(FLAGS.alpha, FLAGS.beta, FLAGS.gamma)
    return splits.task_of(x, y, given, core, rates)


def grids() -> list[splits.Split]:
    """Return the grids of the flag; raise BadInput for another text."""
    found = []
    for text in FLAGS.grids.split(","):
        parts = text.split("x")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            raise BadInput(
                f"expected --grids such as 2x1,4x4, got {text!r}; correct it"
            )
        found.append(shape(text, int(parts[0]) * int(parts[1])))
    return found


def rows() -> Iterator[tuple[str, Row]]:
    """Yield the rows of all tables."""
    made = grids(), sorted(set(flags.integers(FLAGS, "p")))
    given = task()
    rounds = FLAGS.score_rounds
    tables = {
        "splits": partial(splits.predicted_rows, given, made[1]),
        "counted": partial(splits.counted_rows, given, made[0]),
        "bins": partial(accuracy.bins_rows, FLAGS.score_rows, rounds, FLAGS.seed),
        "votes": partial(
            accuracy.votes_rows,
            FLAGS.score_rows,
            FLAGS.score_columns,
            rounds,
            FLAGS.seed,
        ),
    }
    for name in writing.PROGRESS.each([*tables]):
        for row in tables[name]():
            yield name, row


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Compare splits with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "boosting_splits")
    console = writers.tables(splits_report.TABLES, splits_report.TITLES, FLAGS.wide)
    tables: dict[str, list[Row]] = {}
    with writing.run_writer(
        path, FLAGS, None, console, claims=CLAIMS, conclude=splits_report.conclude
    ) as writer:
        for name, row in rows():
            writer.row({"table": name} | row)
            tables.setdefault(name, []).append(row)
        splits_report.draw(path / "boosting_splits", tables["splits"])
        summary = splits_report.summarize(tables)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
