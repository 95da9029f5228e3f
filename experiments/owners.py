"""Updates of Muon and other optimizers, divided among ranks by leaves.

python experiments/owners.py
python experiments/owners.py --optimizers=muon,adamw,lamb --ranks=1,2,3,5,8
mpirun -n 4 python experiments/gpt.py --strategy=owned --optimizer=muon         training

Each leaf of a small GPT is reduced to one rank, its owner, updated there, and sent to
all ranks. The command trains by replicated and by owned updates on virtual ranks, and
compares hashes, words and bytes of state. Order-free sums of 8 logical shards have
equal bits on any number of ranks, so hashes must be equal. Then it times the updates of
each rank's leaves.

Cost: 40 s on one core.
Result: equal hashes on 1, 2, 4 and 8 ranks; as many words as a ring all-reduce; about
1/p of the state; on 4 ranks Muon's update takes less than a third of the time of one.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.owners.claims import CLAIMS
from studies.owners.runs import (
    REDUCERS,
    SHARDS,
    OwnersPlan,
    conclude,
    train,
    update_seconds,
)

from dml.models.layers.blocks import Shape
from dml.runs import folder, writers
from dml.types import BadInput
from dml.update.dense import OPTIMIZERS

FLAGS = flags.define("seed")
FLAGS.text("optimizers", "muon,adamw", f"Optimizers, of {', '.join(OPTIMIZERS)}.")
FLAGS.text("ranks", "1,2,4,8", f"Numbers of virtual ranks, at most {SHARDS}.")
FLAGS.integer("steps", 4, "Number of updates.", 1)
FLAGS.integer("blocks", 2, "Number of blocks of the GPT.", 1)
FLAGS.integer("width", 64, "Width of the GPT in units, a multiple of 4.", 4)
FLAGS.integer("timed_width", 256, "Width of the GPT whose update is timed.", 4)
FLAGS.integer("repeats", 5, "Number of timings, of which the least is taken.", 1)

HEADS = 4  # of attention
TITLES = {
    "training": "Trainings; state: bytes of the rank with most",
    "update": "Update without messages: the slowest rank, and the mean relative to it",
}
COLUMNS: dict[str, writers.Columns] = {
    "training": {
        "optimizer": (9, "{optimizer}"),
        "strategy": (11, "{strategy}"),
        "sums": (10, "{reducer}"),
        "ranks": (5, "{ranks}"),
        "words sent": (11, "{words_sent:,}"),
        "state": (10, "{state_bytes:,}"),
        "sha256": (12, lambda row: row["sha256"][:12]),
        "loss": (8, "{loss:.5f}"),
        "predicted": (11, lambda row: predicted_text(row)),
    },
    "update": {
        "optimizer": (9, "{optimizer}"),
        "ranks": (5, "{ranks}"),
        "ms": (8, writers.scaled_cell("seconds", 1e3, ".2f")),
        "balance": (7, "{balance:.2f}"),
    },
}


def predicted_text(row: writers.Row) -> str:
    """Return the predicted words of a training with exact sums."""
    if row["predicted"] is None or row["reducer"] != "exact":
        return ""
    return f"{row['predicted'] + row['clip_words']:,}"


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train, compare and time with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    names = flags.names(FLAGS.optimizers, OPTIMIZERS, "optimizers")
    ranks = flags.shard_ranks(FLAGS, SHARDS)
    if FLAGS.timed_width % HEADS:
        raise BadInput(
            f"expected --timed_width divisible by {HEADS} heads, got "
            f"{FLAGS.timed_width}; pass "
            f"--timed_width={FLAGS.timed_width + -FLAGS.timed_width % HEADS}"
        )
    shape = Shape(128, 32, FLAGS.blocks, FLAGS.width, HEADS)
    wide = shape._replace(width=FLAGS.timed_width, vocabulary=1024)
    path, table = (
        folder.path(FLAGS.out, "owners"),
        writers.tables(COLUMNS, TITLES, FLAGS.wide),
    )
    summary: dict[str, Any] = {}
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=conclude
    ) as writer:
        for name in names:
            plan = OwnersPlan(shape, name, FLAGS.steps, FLAGS.seed)
            for reducer in REDUCERS:
                for size in ranks:
                    for strategy in ("synchronous", "owned"):
                        writer.row(train(plan, strategy, size, reducer))
        for name in names:
            for size in ranks:
                timed = OwnersPlan(wide, name, 1, FLAGS.seed)
                row = update_seconds(timed, size, FLAGS.repeats)
                writer.row(row)
                summary[f"update_seconds_{name}_{size}"] = row["seconds"]
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
