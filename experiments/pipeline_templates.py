"""Pipelines for every number of nodes, as nodes fail (Oobleck, Jang 2023).

python experiments/pipeline_templates.py                     22 nodes, 4 at least
python experiments/pipeline_templates.py --least=6 --failures=2 --nodes=64

A model needs --least nodes. Templates are pipelines of consecutive sizes, one stage per
node; the command computes the fewest sizes with which --failures+1 pipelines or more
use every number of nodes. Then nodes die in random order, until there are too few.
After each failure the fewest pipelines change. Each pipeline has microbatches in
proportion to its speed. A slot is the time of one microbatch on one node, and
`efficiency` is relative to nodes without a bubble. Nothing is trained.

Cost: 1 s of one core.
Result: templates of 4 to 6 nodes use all nodes from 22 down to 8. A failure changes one
or two pipelines and moves at most three nodes; updates are 83 to 94 % efficient.
"""

from collections.abc import Sequence
from typing import Any

from lab import flags, writing
from studies.pipeline.templates import COLUMNS, chart, conclude, failures, summarize

from dml.runs import folder, writers
from dml.wire.plans.pipeline.templates import make_templates

MAX_NODES = 256  # takes 15 s: each failure tries sets of pipelines

FLAGS = flags.define("seed")
FLAGS.integer("least", 4, "Least number of nodes that the model fits on.", 1)
FLAGS.integer("failures", 1, "Number of simultaneous failures that leave a replica.", 0)
FLAGS.integer("nodes", 22, "Number of nodes at the start.", 1, MAX_NODES)
FLAGS.integer(
    "microbatches", 96, "Number of microbatches of an update, over all pipelines.", 1
)


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Tabulate with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    templates = make_templates(FLAGS.least, FLAGS.failures, FLAGS.nodes)
    path = folder.path(FLAGS.out, "pipeline_templates")
    shown = writers.table(COLUMNS, FLAGS.wide), chart(path / "templates")
    with writing.run_writer(path, FLAGS, None, *shown, conclude=conclude) as writer:
        written = []
        for row in failures(templates, FLAGS.nodes, FLAGS.microbatches, FLAGS.seed):
            written.append(row)
            writer.row(row)
        summary = summarize(templates, written)
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
