"""Training while ranks are killed: equal bits, and the time to the next update.

python experiments/elastic.py           real ranks with Open MPI, else virtual ranks
python experiments/elastic.py --kills=3 --spares=2
python experiments/elastic.py --simulate=9                        virtual ranks
python experiments/elastic.py --simulate=5 --kills=1 --watch      a page that plays it
launch/local.sh --mpi=openmpi experiments/elastic.py     an environment with Open MPI

vision.py trains with --elastic on workers and spares. Random workers are killed at
random moments by SIGKILL. The survivors shrink the communicator, spares replace dead
workers, and the failed update is repeated. An order-free sum adds the gradients of
logical shards, so the parameters have the bits of an undisturbed run.

Columns: ms from the death until worker 0 has noticed it, until all ranks have their new
roles and states, and until the next update is committed.

Cost: 60 s on 2 cores for 9 ranks, 2,500 updates and 5 deaths.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import flags, started, writing
from studies.elastic import real, report, virtual

from dml.runs import folder, writers
from dml.types import BadInput

FLAGS = flags.define("seed")
FLAGS.integer("simulate", 0, "Number of virtual ranks; 0: real ranks if possible.", 0)
FLAGS.integer("workers", 8, "Number of real workers.", 1, 64)
FLAGS.integer("spares", 1, "Number of spare ranks.", 0, 64)
FLAGS.integer("kills", 5, "Number of workers to kill.", 0, 64)
FLAGS.number(
    "mean",
    0.0,
    f"Mean of the exponential time between two kills in s; 0: {real.MEAN:g}, or "
    f"{virtual.MEAN:g} on virtual ranks.",
    0,
)
FLAGS.integer("steps", 2500, "Number of updates.", 1, 10**6)
FLAGS.integer("batch", 64, "Number of examples of an update.", 1)
FLAGS.integer("shards", 8, "Number of logical shards of a minibatch.", 1, 64)
FLAGS.text("model", "mlp", "Network of vision.py.")
FLAGS.text("data", "digits", "Images of vision.py.")
FLAGS.text("allreduce", "halving_doubling", "All-reduce of the gradients.")
FLAGS.switch("watch", False, "Page that plays a small training, watch.html.")


def main(argv: Sequence[str]) -> dict[str, Any]:
    """Train with and without deaths; return the summary."""
    flags.parse(FLAGS, argv)
    path = folder.path(FLAGS.out, "elastic")
    names = ("steps", "batch", "shards", "model", "data", "allreduce", "seed")
    options = [f"--{name}={FLAGS[name].value}" for name in names]
    options.append("--reduce=order_free")
    simulated = FLAGS.simulate
    if simulated and simulated <= FLAGS.spares:
        raise BadInput(
            f"expected more virtual ranks than {FLAGS.spares} spares, got --simulate="
            f"{simulated}; pass fewer --spares"
        )
    if FLAGS.watch:
        return watch(path, simulated)
    if not simulated and not real.has_ulfm():
        simulated = FLAGS.workers + FLAGS.spares
        sys.stdout.write(
            "MPI without ULFM: virtual ranks; --mpi=openmpi of local.sh has ULFM\n"
        )
    with writing.run_writer(
        path,
        FLAGS,
        None,
        writers.table(report.COLUMNS, FLAGS.wide),
        conclude=report.conclude,
    ) as writer:
        plain = started.run("vision.py", 0, "vision.py", options, path / "undisturbed")
        elastic = [*options, "--elastic", f"--spares={FLAGS.spares}", "--save_every=0"]
        place = virtual if simulated else real
        ranks = simulated or FLAGS.workers + FLAGS.spares
        mean = FLAGS.mean or place.MEAN
        plan = real.ElasticPlan(ranks, FLAGS.spares, FLAGS.kills, mean, FLAGS.seed)
        deaths, progress = place.train(plan, elastic, path / "elastic")
        begun = progress[0][0]
        recoveries = real.recoveries(path / "elastic")
        rows = report.timeline([kill.time for kill in deaths], recoveries, begun)
        for row in rows:
            writer.row(row)
        report.draw(path, progress, rows, begun)
        summary = report.summarize(rows, real.summary(path / "elastic"), plain.summary)
        summary["virtual"] = bool(simulated)
        writer.summary(summary)
    return summary


def watch(path: Path, ranks: int) -> dict[str, Any]:
    """Write watch.html, which plays a training with deaths; return the summary."""
    from studies.elastic import film  # strategies, which are slow to import

    mean = FLAGS.mean or film.MEAN
    plan = real.ElasticPlan(ranks, FLAGS.spares, FLAGS.kills, mean, FLAGS.seed)
    with writing.run_writer(path, FLAGS, None) as writer:
        page, deaths = path / "watch.html", virtual.draw_deaths(plan)
        count = film.write(page, ranks, FLAGS.spares, deaths)
        summary = {"deaths": len(deaths), "recoveries": count}
        writer.summary(summary)
    return summary


if __name__ == "__main__":
    flags.run(main)
