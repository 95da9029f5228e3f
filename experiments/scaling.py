"""Predicted speed-up of a model on up to 1024 workers, and its bottleneck.

python experiments/scaling.py --step_seconds=0.1 --parameters=25600000
mpirun -n 2 python experiments/scaling.py                  measured rates and steps
python experiments/scaling.py --simulate=16 --step_seconds=0.01
python experiments/scaling.py --scaling=strong --batch=4096

Predictions use the latency α of a message and the seconds β and γ of sending and adding
a byte.

Cost: 10 s on 2 cores.
Result: a model fitted to the lecture's time of BERT-large on 256 V100 predicts those on
1024 and 1472 V100 (87 % of linear) with errors of -6 and -4 % for rings in two levels,
+27 and +48 % for one flat ring, and -12 and +2 % for a flat ring with overlap.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lab import flags, writing
from studies.scaling import bert as scaling_bert
from studies.scaling import measured as scaling_measured
from studies.scaling import model as scaling_model
from studies.scaling import report as scaling_report
from studies.scaling.claims import CLAIMS
from studies.scaling.flags import FLAGS, rates_from_flags, training_from_flags
from studies.scaling.model import Training

from dml.runs import folder, writers
from dml.types import BadInput, CountedComm

Row = dict[str, Any]


def main(argv: Sequence[str]) -> list[Row]:
    """Predict and measure steps; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "scaling")
    if FLAGS.simulate and not FLAGS.step_seconds:
        raise BadInput(
            "expected --step_seconds with --simulate, since computation takes no "
            "virtual time, got 0; pass for instance --step_seconds=0.01"
        )

    def program(comm: CountedComm) -> Row:
        training, rates = training_from_flags(comm), rates_from_flags(comm)
        tables = {
            "prediction": [
                row
                for overlap in (False, True)
                for row in scaling_model.rows(training, rates, FLAGS.workers, overlap)
            ],
            "measured": measured(comm, training),
            "bert": scaling_bert.rows(),
        }
        titles = scaling_report.titles(training, rates)
        summary = {"p": comm.size, "step_seconds": training.gradient(1)}
        summary |= rates._asdict() | scaling_report.totals(tables)
        shown = (
            writers.tables(scaling_report.COLUMNS, titles, FLAGS.wide),
            scaling_report.chart(path / "scaling"),
        )
        with writing.run_writer(
            path, FLAGS, comm, *shown, claims=CLAIMS, conclude=scaling_report.conclude
        ) as writer:
            for name, rows in tables.items():
                for row in rows:
                    writer.row({"table": name} | row)
            writer.summary(summary)
        return summary

    return flags.ranks(program, FLAGS, read=["network"])


def measured(comm: CountedComm, training: Training) -> list[Row]:
    """Measure steps on two or more ranks; return no rows for one rank."""
    if comm.size == 1:
        return []
    compute: Callable[[], Any]
    if FLAGS.step_seconds:
        wait = comm.platform.compute if FLAGS.simulate else time.sleep
        compute = partial(wait, training.gradient(comm.size))
    else:
        examples = max(1, round(training.examples(comm.size)))
        compute = scaling_measured.gradient_call(training.parameters, examples)
    return scaling_measured.steps(comm, training.parameters, training.itemsize, compute)


if __name__ == "__main__":
    flags.run(main)
