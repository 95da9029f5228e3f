"""K-FAC on a grid of ranks: memory or words, by the fraction of gradient workers.

python experiments/kfac.py
python experiments/kfac.py --ranks=3,6 --layers=11 --width=128
mpirun -n 4 python experiments/vision.py --strategy=kfac --fraction=0.5       training

Trains a multilayer perceptron by K-FAC on virtual ranks with every possible fraction,
and compares hashes, words and bytes with their predictions. Then it counts the updates
that K-FAC, momentum and Adam need to reach a training loss, on one rank with three
settings each.

Cost: 15 s on one core.
Result: one hash for all fractions on 1, 2, 4 and 8 ranks. On 8 ranks fraction 1 stores
several times the bytes of fraction 1/8. K-FAC needs 0.5 to 0.75 times the updates of
Adam; each takes several times as long.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.kfac.claims import CLAIMS
from studies.kfac.report import conclude, draw
from studies.kfac.runs import (
    SETTINGS,
    SHARDS,
    TARGETS,
    case,
    to_target,
    with_fraction,
)

from dml.data.images.datasets import IMAGES
from dml.problems import network
from dml.runs import folder, writers

FLAGS = flags.define("seed")
FLAGS.text("ranks", "1,2,4,8", f"Numbers of virtual ranks, at most {SHARDS}.")
FLAGS.text("data", "digits", f"Images: {', '.join(IMAGES)}, or a folder of images.")
FLAGS.integer("layers", 7, "Number of hidden layers.", 1)
FLAGS.integer("width", 64, "Number of units of a hidden layer.", 1)
FLAGS.integer("steps", 20, "Number of updates with each fraction.", 1)
FLAGS.integer("updates", 300, "Largest number of updates to reach a loss.", 11)

TITLES = {
    "fraction": "K-FAC on virtual ranks; words of all ranks, bytes of the largest rank",
    "training": "Updates until the training loss, on one rank",
}
COLUMNS: dict[str, writers.Columns] = {
    "fraction": {
        "ranks": (5, "{ranks}"),
        "fraction": (8, "{fraction:.3f}"),
        "words sent": (11, "{words_sent:,}"),
        "predicted": (11, "{predicted_words:,}"),
        "bytes": (9, "{state_bytes:,.0f}"),
        "virtual ms": (10, writers.scaled_cell("update_seconds", 1e3, ".3f")),
        "sha256": (12, lambda row: row["sha256"][:12]),
        "predicted bytes": (15, "{predicted_bytes:,}"),
    },
    "training": {
        "name": (8, "{name}"),
        "rate": (6, "{rate:g}"),
        "damping": (7, "{damping:g}"),
        **{
            f"to {target:g}": (7, writers.scaled_cell(f"updates_{target:g}", 1, "d"))
            for target in TARGETS
        },
        "loss": (8, writers.scaled_cell("loss", 1, ".5f")),
        "accuracy": (8, "{accuracy:.3f}"),
        "ms/update": (9, writers.scaled_cell("update_seconds", 1e3, ".2f")),
    },
}


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train and compare with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    ranks = flags.shard_ranks(FLAGS, SHARDS)
    seed, steps = FLAGS.seed, FLAGS.steps
    task = network("mlp", FLAGS.data, *[FLAGS.width] * FLAGS.layers).problem(seed)
    path, table = (
        folder.path(FLAGS.out, "kfac"),
        writers.tables(COLUMNS, TITLES, FLAGS.wide),
    )
    summary: dict[str, Any] = {}
    rows: list[writers.Row] = []
    with writing.run_writer(
        path, FLAGS, None, table, claims=CLAIMS, conclude=conclude
    ) as writer:
        for size in ranks:
            for columns in range(1, size + 1):
                if size % columns == 0:
                    fraction = columns / size
                    rows.append(with_fraction(task, size, fraction, steps, seed))
                    writer.row(rows[-1])
        for name, settings in SETTINGS.items():
            for setting in settings:
                training = case(task, setting, FLAGS.updates, seed)
                writer.row(to_target(name, setting, training))
        draw(path / "kfac", rows)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
