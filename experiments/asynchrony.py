"""How late may reads be? Error by delay, step and sparsity, of simulated HOGWILD!

python experiments/asynchrony.py                             4 problems, 3 rates
python experiments/asynchrony.py --law=shifted_exponential:0,1 --per_coordinate
python experiments/asynchrony.py --problems=4,150 --delays=1000 --rates=0.5

A support vector machine by SGD on one core. Each update reads weights as they were
τ X updates ago (X of --law, τ of --delays), and changes those of now. Problems are
generated examples, by their nonzeros of --features, all of length 1; or newsgroups. The
overlap is ⟨x, x'⟩ of two examples drawn, on average. The error is the objective above
the optimum's after the last epoch; a delay is tolerated that does not double it.

Cost: 30 s of one core.
Result: at rate 0.2 reads 512 updates late cost 2 to 660 times the error, by overlap
0.01 to 0.4. But newsgroups (more steps, nearer the optimum) bears less than 16 at 0.05.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import flags
import numpy as np
import writing
from asynchrony_claims import CLAIMS
from asynchrony_report import COLUMNS, Case, chart, overlap, row, summarised

from dml import sim
from dml.data.documents import documents
from dml.data.svmlight import generate
from dml.metrics import runs, writers
from dml.metrics.timer import Timer
from dml.models import descent, sparse_svm
from dml.sim import laws
from dml.strategies.shared.delayed import delayed
from dml.strategies.shared.workers import Descent, orders
from dml.types import BadInput, Batch, Comm, Step

FLAGS = flags.define("seed")
switch = partial(flags.switch, flag_values=FLAGS)
text = partial(flags.text, flag_values=FLAGS)
integer = partial(flags.integer, flag_values=FLAGS)
number = partial(flags.number, flag_values=FLAGS)
text("problems", "2,16,100,newsgroups", "Nonzeros of generated examples, newsgroups.")
text("rates", "0.05,0.2,0.8", "Of SGD, constant.")
text("delays", "8,32,128,512", "In updates, beside none; times a draw of the law.")
text("law", "constant:1", "Of delays, whose mean is 1.")
switch("per_coordinate", False, "Draw a delay for each weight that is read.")
integer("examples", 2000, "That are generated.", 1)
integer("features", 200, "Of generated examples.", 1)
integer("epochs", 5, "Of training.", 1)
number("mu", 1e-3, "Of the norm.", 1e-9)
number("momentum", 0.0, "Of SGD.", 0, 1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Sweep as the flags say; return the summary."""
    flags.parse(FLAGS, argv)
    rates = sorted({*flags.numbers(FLAGS, "rates")})
    taus = sorted({0.0, *flags.numbers(FLAGS, "delays")})
    late, path = laws.law(FLAGS.law), runs.path(FLAGS.out, "asynchrony")
    if len(late.speeds) > 1:
        raise BadInput(
            f"expected a --law without ranks, got {FLAGS.law!r}; leave out its speeds"
        )
    batches = {name: problem(name) for name in FLAGS.problems.split(",")}
    table = writers.table(COLUMNS)
    with writing.first(path, FLAGS, None, table, chart(path), claims=CLAIMS) as writer:
        cases: list[Case] = []
        rows: list[dict[str, Any]] = []
        for name, batch in sorted(batches.items(), key=lambda item: overlap(item[1])):
            data = sparse_svm.documents(batch, FLAGS.mu)
            width = batch.inputs.shape[1]
            least = sparse_svm.objective(sparse_svm.optimum(data, width), data)
            for rate, tau in itertools.product(rates, taus):
                step = trained(data, width, rate, tau, late)
                error = sparse_svm.objective(step.params(), data) - least
                cases.append(Case(name, overlap(batch), rate, tau, error))
                rows.append(row(cases, 1 - least) | step.measures)
                writer.row(rows[-1])
        summary = summarised(rows)
        writer.summary(summary)
    return [summary]


def problem(name: str) -> Batch:
    """Return the examples of a name, each of length 1."""
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


def trained(data: Any, width: int, rate: float, tau: float, late: laws.Law) -> Step:
    """Return the last epoch's Step."""
    start = np.zeros(width, data.values.dtype)
    problem = descent.problem(sparse_svm, data, start)

    def program(comm: Comm) -> Step:
        *_, last = delayed(
            problem,
            itertools.islice(orders(problem.examples, 1, FLAGS.seed), FLAGS.epochs),
            Descent(lambda epoch: rate, FLAGS.momentum),
            comm=comm,
            timer=Timer(),
            law=late._replace(draws=lambda draws, n: tau * late.draws(draws, n)),
            seed=FLAGS.seed,
            per_coordinate=FLAGS.per_coordinate,
        )
        return last

    return sim.run(program, 1)[0]


if __name__ == "__main__":
    flags.run(main)
