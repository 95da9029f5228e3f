"""Training by volunteers that join and leave, in comparison with a data centre.

python experiments/volunteers.py                              10,000 virtual volunteers
python experiments/volunteers.py --simulate=1000 --lifetime=0.5
python experiments/volunteers.py --simulate=100 --matchmakings=10000
mpirun -n 8 python experiments/volunteers.py                  groups on real ranks

Virtual volunteers have uneven speeds, bandwidths and lifetimes. After --steps gradient
evaluations, the volunteers on a line of a grid form a group. The group closes at a
deadline that is computed from the arrivals of its members; late volunteers use their
work in the next round. Members average with shares by bandwidth. Newcomers download the
weights from a swarm. The network has 2,410 parameters; its transfers take the time of
--megabytes. In the data centre, as many equal and permanent peers sum each gradient.

Tables: regret of deadlines, shares by bandwidth, broadcasts in pieces, the square-cube
law, matchmakings with lost messages, both trainings, constant deadlines. With mpirun,
the program instead measures matchmaking and averages of --buffer megabytes.

Cost: 29 s of processor time; 91 s and 1.5 GB for 100,000 volunteers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import flags, writing
from studies.volunteers import real, report, tables
from studies.volunteers.learner import learner
from studies.volunteers.training import HOUR, Task, squarest

from dml.runs import folder, writers
from dml.sim.delays import delay_distribution
from dml.sim.volunteers.groups import Rules
from dml.sim.volunteers.population import Traits
from dml.types import Comm
from dml.wire.comm.mpi import world

FLAGS = flags.define("seed", "watchdog")
FLAGS.integer("simulate", 10_000, "Number of virtual volunteers.", 2, 10**6)
FLAGS.integer("group", 10, "Largest number of volunteers of a group.", 2, 1000)
FLAGS.integer("steps", 8, "Number of gradient evaluations between averages.", 1, 10**4)
FLAGS.integer("batch", 8, "Number of examples of a gradient evaluation.", 1, 10**4)
FLAGS.number("lr", 0.4, "Learning rate of SGD.", 0)
FLAGS.number("target", 0.95, "Accuracy on held-out images at which a run ends.", 0, 1)
FLAGS.integer("rounds", 60, "Largest number of rounds.", 1, 10**4)
FLAGS.text("work", "lognormal:20,0.3", "Delay distribution of a gradient evaluation.")
FLAGS.number("lifetime", 2.0, "Median of the mean lifetimes of volunteers in h.", 1e-3)
FLAGS.number("bandwidth", 20.0, "Median upload of volunteers in Mbit/s.", 1e-3)
FLAGS.number("megabytes", 72.0, "Size of the weights of all transfers in MB.", 1e-3)
FLAGS.text("deadlines", "60,600,6000", "Constant deadlines in seconds to compare.")
FLAGS.integer(
    "compared", 512, "Number of volunteers in the comparison of deadlines.", 2, 10**6
)
FLAGS.integer("most", 300, "Largest number of rounds in the comparison.", 1)
FLAGS.integer(
    "groups", 1000, "Number of groups of each distribution of arrivals.", 1, 10**6
)
FLAGS.integer(
    "matchmakings", 200, "Number of matchmakings with lost messages.", 1, 10**7
)
FLAGS.number("buffer", 4.0, "Size of an average on real ranks in MB.", 1e-3, 1e4)
FLAGS.integer("measured", 100, "Number of measured rounds on real ranks.", 1, 10**6)

ABSENCE = 300.0  # seconds until a newcomer takes a seat
CLIENTS = 0.1  # share of volunteers that own no part of an average
SPREAD = 0.5  # of logarithms of speeds, bandwidths and mean lifetimes
MATCHMAKING = 1.0  # seconds from a deadline to the average


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train, or measure on real ranks, with the parsed flags; return the summary."""
    flags.parse(FLAGS, argv)
    path, comm = folder.path(FLAGS.out, "volunteers"), world(FLAGS.watchdog)
    return measure(comm, path) if comm.size > 1 else simulate(path)


def measure(comm: Comm, path: Path) -> dict[str, Any]:
    """Measure groups on real ranks; return the summary."""
    console = writers.table(tables.COLUMNS["real"], FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, comm, console, conclude=report.conclude_real
    ) as writer:
        figures = real.measure(comm, FLAGS.buffer, FLAGS.measured, FLAGS.seed)
        summary = {"ranks": comm.size, "buffer": FLAGS.buffer, "rounds": FLAGS.measured}
        summary |= figures
        writer.row(summary)
        writer.summary(summary)
    return summary


def simulate(path: Path) -> dict[str, Any]:
    """Train with virtual volunteers; return the summary."""
    task = training()
    constants = flags.positive_numbers(FLAGS, "deadlines")
    compared = min(FLAGS.compared, task.peers)
    arguments = report.Arguments(
        task, compared, constants, FLAGS.most, FLAGS.groups, FLAGS.matchmakings
    )
    console = writers.tables(tables.COLUMNS, tables.TITLES, FLAGS.wide)
    with writing.run_writer(
        path, FLAGS, None, console, conclude=report.conclude
    ) as writer:
        made = writing.write_tables(writer, report.TABLES, arguments)
        summary = report.summarize(made, task)
        report.draw(path, made, task.target)
        writer.summary(summary)
    return summary


def training() -> Task:
    """Return the training that the flags define."""
    flags.check_memory(4 * 2410, FLAGS.simulate)
    rules = Rules(
        squarest(FLAGS.simulate, FLAGS.group),
        delay_distribution(FLAGS.work),
        FLAGS.steps,
        1e6 * FLAGS.megabytes,
        matchmaking=MATCHMAKING,
    )
    upload = FLAGS.bandwidth * 1e6 / 8
    traits = Traits(HOUR * FLAGS.lifetime, ABSENCE, upload, CLIENTS, SPREAD)
    network = learner(FLAGS.seed, FLAGS.steps, FLAGS.batch, FLAGS.lr)
    return Task(
        network, FLAGS.simulate, rules, traits, FLAGS.target, FLAGS.rounds, FLAGS.seed
    )


if __name__ == "__main__":
    flags.run(main)
