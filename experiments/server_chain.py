"""Chain replication of a parameter server: head, middle and tail die in turn.

python experiments/server_chain.py                           8 virtual ranks
python experiments/server_chain.py --kill=head,tail --replicas=2 --consistency=async
mpirun --with-ft ulfm -n 8 python experiments/server_chain.py        Open MPI

A run without deaths is repeated while replicas die at equal intervals; spares take
their places (van Renesse & Schneider 2004; Li 2014). On real ranks a process kills
itself by SIGKILL. The recovery is the time from a death to the acknowledgement of an
update that a worker sent after it.

Cost: 2 s of one core on virtual ranks.
Result: with bsp the table has the bits of the run without deaths. No acknowledged
update is lost or applied twice. Workers recover in 0.25 ms of virtual time, and in 12
to 61 ms on 8 processes on 2 cores.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from lab import flags, writing
import numpy as np
from studies.server.claims import recovers
from studies.server.deaths import (
    COLUMNS,
    conclude,
    count_updates,
    death_rows,
    recoveries,
    start_deaths,
    victims,
)
from studies.server.problems import PROBLEMS, default_rate, loader, shards
from studies.server.runs import (
    ServerPlan,
    broadcast_number,
    simulate_single_process,
    summarize,
    train_on_servers,
)

from dml.runs import folder, writers
from dml.strategies.server.report import Report
from dml.strategies.server.roles import replicated_roles
from dml.strategies.server.server import Setup
from dml.strategies.server.tables import as_table
from dml.types import CountedComm, Problem
from dml.wire.comm import first_of_each_host
from dml.wire.server.consistency import Choice, consistency

RANKS = 8
SHARE = 0.75  # of the time without deaths, in which all replicas die
FLAGS = flags.define("seed", *flags.VIRTUAL, "watchdog")
FLAGS.switch("elastic", True, "Continuation of the run after deaths.")
FLAGS.integer("replicas", 3, "Number of replicas of the server.", 2)
FLAGS.integer(
    "spares", 3, "Number of spares, each of which replaces a dead replica.", 0
)
FLAGS.text("kill", "head,middle,tail", "Roles of the replicas that die, in turn.")
FLAGS.define_consistency("bsp", "the workers")
FLAGS.integer("batch", 64, "Number of images in a minibatch, over all workers.", 1)
FLAGS.integer("clocks", 100, "Number of minibatches.", 1)


def main(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train with the parsed flags; return the summaries of this process's ranks."""
    flags.parse(FLAGS, argv)
    simulate_single_process(FLAGS, RANKS)
    load = cache(lambda: as_table(loader("digits", FLAGS.seed, 0.0, "")()))
    plain = flags.ranks(partial(program, load, {}, {}), FLAGS)[0]
    ranks = plain["victims"]
    interval = SHARE * plain["seconds"] / (len(ranks) + 1)
    deaths = {rank: interval * (k + 1) for k, rank in enumerate(ranks)}
    if FLAGS.simulate:
        FLAGS.events = ";".join(f"die:{rank}@{t}" for rank, t in deaths.items())
    results = flags.ranks(partial(program, load, deaths, plain), FLAGS)
    return [result for result in results if result is not None]


def program(
    load: Callable[[], Problem],
    deaths: dict[int, float],
    plain: dict[str, Any],
    comm: CountedComm,
) -> dict[str, Any]:
    """Train while ranks die, at seconds after the start; return the summary."""
    defaults = PROBLEMS["digits"]
    make_shard, _ = shards(defaults, "sgd", default_rate(defaults, "sgd"), 0.0)
    problem = first_of_each_host(comm, load)
    roles = replicated_roles(comm.size, 1, FLAGS.replicas, FLAGS.spares)
    ranks = victims(roles.chains()[0], FLAGS.kill.split(","))  # refused before a run
    rule = consistency(FLAGS.consistency, Choice(), roles.workers)
    plan, report = ServerPlan(FLAGS.batch, FLAGS.clocks, FLAGS.seed), Report()
    start = start_deaths(comm, deaths)
    setup = Setup(roles, rule, elastic=True)
    result = train_on_servers(comm, problem, make_shard, setup, plan, report=report)
    summary = result and summarize(result)
    if not deaths:
        seconds = broadcast_number(comm, np.ptp(result.log["seconds"]) if result else 0)
        return {"victims": ranks, "seconds": seconds, "summary": summary}
    times = list(deaths.values())
    waits = recoveries(comm, report.acknowledged, [start + time for time in times])
    path, living = folder.path(FLAGS.out, "server_chain"), comm.Shrink()
    console = writers.table(COLUMNS, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, living, console, claims=[recovers], conclude=conclude
    ) as writer:
        if result is None or waits is None:
            return {}
        rows = death_rows(list(deaths), FLAGS.kill.split(","), times, waits)
        for row in rows:
            writer.row(row)
        before = plain["summary"]["sha256"] if plain["summary"] else ""
        summary |= count_updates(result, roles.workers, plan.clocks) | {
            "deaths": comm.size - living.size,
            # None: no update was sent after a death
            "recovery_seconds": None if None in waits else max(waits, default=None),
            "sha256_without_deaths": before,
            "virtual": int(comm.platform.virtual),
        }
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
