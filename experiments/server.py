"""Training on parameter servers: every problem and every consistency.

python experiments/server.py --simulate=8                     8 virtual ranks
mpirun -n 4 python experiments/server.py --consistency=async  3 workers and 1 server
python experiments/server.py --simulate=8 --problem=factors --consistency=ssp \\
    --straggle=shifted_exponential:1,1
python experiments/server.py --simulate=4 --problem=logistic --l1=1e-4 --kkt_margin=0
mpirun -n 4 python experiments/server.py --consistency=async --record=run.rec
python experiments/server.py --consistency=async --replay=run.rec --simulate=4
python experiments/server.py --simulate=8 --elastic "--events=die:1@0.001"
python experiments/server.py --simulate=6 --servers=1 --consistency=ssp --clocks=12 \\
    --problem=generated --straggle=shifted_exponential:1,1 --watch     a page that plays

Cost: 2 to 12 s of one core of a busy machine.
Result: 96.7 % of the held-out digits correct after 300 minibatches; RMSE 0.894 on
MovieLens under SSP with s = 3, where workers wait for 6 % of their time (BSP: 41 %);
90.5 % of the held-out documents correct with 10 % of the weights. A replay has the same
sha256.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from lab import estimates, flags, readers, writing
from studies.server import film
from studies.server import flags as server_flags
from studies.server import runs as server_runs
from studies.server.problems import PROBLEMS, default_rate, loader, shards
from studies.server.runs import ServerPlan, conclude, draw, rows, summarize

from dml.runs import folder, writers
from dml.runs.writers import Writer, ignore
from dml.strategies.server.server import MakeShard, Setup
from dml.strategies.server.workers import RowFilter
from dml.types import CountedComm
from dml.wire.comm import first_of_each_host
from dml.wire.comm.once import once

LOGISTIC = ("svmlight", "l1")  # flags of --problem=logistic
MESSAGES = 4  # per worker, server and clock: pull, state, rows, push
FLAGS = flags.define("seed", *flags.RANKS, *flags.ORDER)
server_flags.define(FLAGS)
FLAGS.choice("problem", "digits", list(PROBLEMS), "Problem to train.")
FLAGS.text("svmlight", "", "File of examples for --problem=logistic.")
FLAGS.text("optimizer", "", "Update rule of the servers; empty uses sgd.")
FLAGS.number("lr", 0.0, "Step size; 0 uses the default of problem and optimizer.", 0)
FLAGS.integer("batch", 0, "Examples in a minibatch; 0 uses the problem's default.", 0)
FLAGS.integer("clocks", 0, "Number of minibatches; 0 uses the problem's default.", 0)
FLAGS.switch("reshuffle", True, "Other minibatches in each epoch than in the first.")
FLAGS.integer("snapshots", 10, "Clocks between two evaluations; 0: only at the end.", 0)
FLAGS.number("l1", 0.0, "Weight of the L1 norm in logistic's objective.", 0)
FLAGS.switch("watch", False, "Page that plays the messages, watch.html.")
FLAGS.number("kkt_margin", -1.0, "Margin of the KKT filter; -1 sends all keys.", -1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    readers.check_consistency(FLAGS)
    readers.check(FLAGS, "problem", dict.fromkeys(LOGISTIC, ["logistic"]))
    defaults = PROBLEMS[FLAGS.problem]
    optimizer = FLAGS.optimizer or "sgd"
    lr = FLAGS.lr or default_rate(defaults, optimizer)
    make_shard, make_worker_update = shards(defaults, optimizer, lr, FLAGS.l1)
    batch, clocks = FLAGS.batch or defaults.batch, FLAGS.clocks or defaults.clocks
    plan = ServerPlan(
        batch, clocks, FLAGS.seed, FLAGS.straggle, reshuffle=FLAGS.reshuffle
    )
    path = folder.path(FLAGS.out, "server")
    load = cache(loader(FLAGS.problem, FLAGS.seed, FLAGS.l1, FLAGS.svmlight))
    row_filter = server_flags.kkt_filter(FLAGS)

    def program(comm: CountedComm) -> dict[str, Any]:
        problem = first_of_each_host(comm, load)
        make_setup = partial(setup_from_flags, comm, make_worker_update, row_filter)
        setup = once(comm, "setup", None, make_setup)
        pairs = setup.roles.workers * len(setup.roles.servers)
        what = f"{plan.clocks} clocks of {pairs:,} pairs of a worker and a server"
        messages = pairs * (MESSAGES * plan.clocks + 1)
        estimates.warn(comm, what, messages, "server")
        text = server_runs.summary_text
        console = writers.console(plan.clocks, unit="clock", summary_text=text)
        open_files = partial(writing.run_writer, path, FLAGS, conclude=conclude)
        with (
            writers.rank_0_writer(comm.rank, console) as bar,
            ExitStack() as files,
        ):
            if not setup.elastic:
                writer = files.enter_context(open_files(comm))
            arguments = (problem, make_shard, setup, plan, Writer(bar.row, ignore))
            result = server_runs.train_on_servers(comm, *arguments)
            if setup.elastic:  # of the first living rank
                living = comm.Shrink()
                if not comm.platform.virtual:
                    comm.Revoke()  # ends receives from dead ranks, for MPI's end
                writer = files.enter_context(open_files(living, ranks=comm.size))
            if not result:
                return {}
            for row in rows(result):
                writer.row(row)
            summary = summarize(result)
            draw(path, result)
            writer.summary(summary)
            bar.summary(summary)
        return summary

    if FLAGS.watch:
        return film.played(program, FLAGS, path)
    return flags.ranks(program, FLAGS)


def setup_from_flags(
    comm: CountedComm, make_worker_update: MakeShard, row_filter: RowFilter | None
) -> Setup:
    """Return the roles of the ranks and the settings of servers and workers."""
    roles = server_flags.roles(FLAGS, comm.size)
    rule = server_flags.rule(FLAGS, roles.workers)
    options = server_flags.worker_options(FLAGS)._replace(row_filter=row_filter)
    rest = options, FLAGS.key_lists, FLAGS.snapshots
    elastic = FLAGS.elastic or roles.are_replicated
    return Setup(roles, rule, make_worker_update, *rest, elastic=elastic)


if __name__ == "__main__":
    flags.run(main)
