"""Training on parameter servers: eight problems, every consistency.

python experiments/server.py --simulate=8                        virtual ranks
mpirun -n 4 python experiments/server.py --consistency=async  real ranks, 1 is a server
python experiments/server.py --simulate=8 --problem=factors --consistency=ssp \\
    --straggle=shifted_exponential:1,1
python experiments/server.py --simulate=4 --problem=logistic --l1=1e-4 --kkt_margin=0
mpirun -n 4 python experiments/server.py --consistency=async --record=run.rec
python experiments/server.py --consistency=async --replay=run.rec --simulate=4

Cost: 2 to 12 s of one core of a busy machine.
Result: 96.7 % of the held-out digits correct after 300 minibatches; RMSE 0.894 on
MovieLens under SSP with s = 3, where workers wait for 6 % of their time (BSP: 41 %);
90.5 % of the held-out documents correct with 10 % of the weights. A replay has the same
sha256.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from lab import estimates, flags, writing
from studies.server import flags as server_flags
from studies.server.problems import PROBLEMS, loading, rate, shards
from studies.server.runs import Plan, drawn, ends, ran, rows, summarised

from dml.models.sparse.logistic import kkt
from dml.runs import folder
from dml.runs import writers
from dml.runs.writers import Writer, ignore
from dml.strategies.server.server import Make, Setup
from dml.strategies.server.workers import RowFilter
from dml.types import BadInput, CountedComm
from dml.wire.comm import first_of_each_host
from dml.wire.comm.once import once

MESSAGES = 4  # per worker, server and clock: pull, state, rows, push
FLAGS = flags.define(
    *("seed", *flags.VIRTUAL, "straggle", "watchdog", "record", "replay")
)
server_flags.define(FLAGS)
FLAGS.choice("problem", "digits", list(PROBLEMS), "Problem to train.")
FLAGS.text("svmlight", "", "File of examples for --problem=logistic.")
FLAGS.text("optimizer", "", "Update rule of the servers; empty uses sgd.")
FLAGS.number(
    "lr", 0.0, "Step size; 0 uses the default of the problem and optimizer.", 0
)
FLAGS.integer(
    "batch", 0, "Examples in a minibatch, over all workers; 0 uses the default.", 0
)
FLAGS.integer("clocks", 0, "Number of minibatches; 0 uses the default.", 0)
FLAGS.integer("snapshots", 10, "Clocks between two evaluations; 0: only at the end.", 0)
FLAGS.number("l1", 0.0, "Weight of the L1 norm in logistic's objective.", 0)
FLAGS.number(
    "kkt_margin", -1.0, "Margin of the KKT filter of keys; -1 sends all keys.", -1
)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    stated = PROBLEMS[FLAGS.problem]
    optimizer = FLAGS.optimizer or "sgd"
    lr = FLAGS.lr or rate(stated, optimizer)
    update, own = shards(stated, optimizer, lr, FLAGS.l1)
    batch, clocks = FLAGS.batch or stated.batch, FLAGS.clocks or stated.clocks
    plan = Plan(batch, clocks, FLAGS.seed, FLAGS.straggle)
    path = folder.path(FLAGS.out, "server")
    load = cache(loading(FLAGS.problem, FLAGS.seed, FLAGS.l1, FLAGS.svmlight))
    key_filter = filter_of_keys()

    def program(comm: CountedComm) -> dict[str, Any]:
        problem = first_of_each_host(comm, load)
        setup = once(comm, "setup", None, lambda: settings(comm, own, key_filter))
        pairs = setup.roles.workers * len(setup.roles.servers)
        what = f"{plan.clocks} clocks of {pairs:,} pairs of a worker and a server"
        messages = pairs * (MESSAGES * plan.clocks + 1)
        estimates.warn(comm, what, messages, "server")
        console = writers.console(plan.clocks, unit="clock", summary_text=ends)
        with (
            writers.first(comm.rank, console) as bar,
            writing.first(path, FLAGS, comm) as writer,
        ):
            result = ran(comm, problem, update, setup, plan, Writer(bar.row, ignore))
            if not result:
                return {}
            for row in rows(result):
                writer.row(row)
            summary = summarised(result)
            drawn(path, result)
            writer.summary(summary)
            bar.summary(summary)
        return summary

    return flags.ranks(program, FLAGS)


def filter_of_keys() -> RowFilter | None:
    """Return the KKT filter of keys, or None to send all keys."""
    if FLAGS.kkt_margin < 0:
        return None
    if not FLAGS.l1:
        raise BadInput(
            f"expected --l1 with --kkt_margin={FLAGS.kkt_margin:g}, got none; pass "
            "--l1 above 0, or delete --kkt_margin"
        )
    return partial(kkt, l1=FLAGS.l1, margin=FLAGS.kkt_margin)


def settings(comm: CountedComm, own: Make, key_filter: RowFilter | None) -> Setup:
    """Return the roles of the ranks and the settings of servers and workers."""
    roles = server_flags.roles(FLAGS, comm.size)
    rule = server_flags.rule(FLAGS, roles.workers)
    options = server_flags.worker_options(FLAGS)._replace(row_filter=key_filter)
    return Setup(roles, rule, own, options, FLAGS.key_lists, FLAGS.snapshots)


if __name__ == "__main__":
    flags.run(main)
