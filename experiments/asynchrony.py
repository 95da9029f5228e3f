"""Tolerated delay of reads: error of simulated HOGWILD! by delay, rate and sparsity.

python experiments/asynchrony.py                             4 problems, 3 rates
python experiments/asynchrony.py --law=shifted_exponential:0,1 --per_coordinate
python experiments/asynchrony.py --problems=4,150 --delays=1000 --rates=0.5

A support vector machine is trained by SGD on one core. Each update reads the weights of
τ X updates before (X is drawn from --law, τ is one of --delays) and changes the current
weights. A problem is a set of generated examples of length 1, named by their number of
nonzeros, or newsgroups. Its overlap is the mean of ⟨x, x'⟩ over random pairs of
examples. The error is the objective minus the optimum after the last epoch; a delay is
tolerated if it does not double the error.

Cost: 30 s of one core.
Result: at rate 0.2, a delay of 512 updates multiplies the error by 2 (overlap 0.01) to
660 (overlap 0.4). Newsgroups, with more steps and nearer the optimum, tolerates a delay
below 16 at rate 0.05.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
import numpy as np
from studies.shared_memory.asynchrony_claims import CLAIMS
from studies.shared_memory.asynchrony_report import (
    COLUMNS,
    chart,
    conclude,
    errors,
    overlap,
    summarize,
)

from dml.data.sparse.documents import documents
from dml.data.sparse.svmlight import generate
from dml.runs import folder, writers
from dml.runs.writers import Row
from dml.sim import delays
from dml.types import BadInput, Batch

FLAGS = flags.define("seed")
FLAGS.text(
    "problems", "2,16,100,newsgroups", "Nonzeros of generated examples, or newsgroups."
)
FLAGS.text("rates", "0.05,0.2,0.8", "Constant rates of SGD.")
FLAGS.text(
    "delays", "8,32,128,512", "Delays in updates, times a draw of --law; 0 is added."
)
FLAGS.text("law", "constant:1", "Delay distribution with mean 1.")
FLAGS.switch("per_coordinate", False, "Separate delay for each weight that is read.")
FLAGS.integer("examples", 2000, "Generated examples.", 1)
FLAGS.integer("features", 200, "Features of generated examples.", 1)
FLAGS.integer("epochs", 5, "Number of epochs.", 1)
FLAGS.number("mu", 1e-3, "Weight of half the squared norm.", 1e-9)
FLAGS.number("momentum", 0.0, "Momentum of SGD.", 0, 1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Sweep with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    rates = sorted({*flags.numbers(FLAGS, "rates")})
    taus = sorted({0.0, *flags.numbers(FLAGS, "delays")})
    distribution, path = (
        delays.delay_distribution(FLAGS.law),
        folder.path(FLAGS.out, "asynchrony"),
    )
    if len(distribution.speeds) > 1:
        raise BadInput(
            f"expected a --law without speeds of ranks, got {FLAGS.law!r}; delete them"
        )
    batches = {name: problem(name) for name in FLAGS.problems.split(",")}
    table = writers.table(COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, table, chart(path), claims=CLAIMS, conclude=conclude
    ) as writer:
        rows: list[Row] = []
        for name, batch in sorted(batches.items(), key=lambda item: overlap(item[1])):
            for row in errors(batch, rates, taus, distribution, FLAGS):
                rows.append({"problem": name, "overlap": overlap(batch)} | row)
                writer.row(rows[-1])
        summary = summarize(rows)
        writer.summary(summary)
    return [summary]


def problem(name: str) -> Batch:
    """Return the examples of a problem, scaled to length 1."""
    if name == "newsgroups":
        return documents("newsgroups")[0]
    nonzeros = flags.positive(name, "problems")
    if nonzeros > FLAGS.features:
        raise BadInput(
            f"expected at most --features={FLAGS.features} nonzeros in --problems, got "
            f"{nonzeros}; pass fewer, or more --features"
        )
    batch = generate(FLAGS.examples, FLAGS.features, nonzeros, FLAGS.seed)
    lengths = np.sqrt(batch.inputs.power(2).sum(axis=1).A1)
    batch.inputs.data /= np.repeat(lengths, nonzeros)
    return batch


if __name__ == "__main__":
    flags.run(main)
