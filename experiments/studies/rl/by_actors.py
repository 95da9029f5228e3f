"""Training by learners and actors: IMPALA and SEED."""

from typing import Any

from lab import flags

from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.types import CountedComm, Environment, Problem
from dml.update.dense import make
from studies.rl.contract import Training
from studies.rl.settings import Settings

ACTORS_PER_ROLLOUT = 4  # actors per rollout of an update, by default


def problem(
    values: flags.FlagValues, environment: Environment, chosen: Settings
) -> Problem:
    """Return the problem of rollouts."""
    from dml.models.policies.rollouts import rollout_problem

    return rollout_problem(
        environment,
        copies=chosen.copies,
        length=chosen.length,
        seed=values.seed,
        widths=chosen.widths,
        **{"correction": values.correction, **chosen.loss},
    )


def train(
    values: flags.FlagValues,
    problem: Problem,
    chosen: Settings,
    comm: CountedComm,
    saved: Any,
) -> Training:
    """Return the training of this rank; see `contract.Algorithm`."""
    done = saved[0] if saved else 0
    acts = comm.rank >= values.learners
    group: Any = comm.Split(int(acts), comm.rank)
    allreduce = flags.allreduce(values.allreduce, values, comm.size)
    own: dict[str, Any] = {}
    if values.algorithm == "seed":
        own["inference"] = values.inference
    if saved:
        own |= {"version": done, "state": saved[1]["state"]}
    steps = strategy(values.algorithm, problem, comm.size)(
        problem,
        range(values.updates - done),
        make(chosen.optimizer, chosen.lr),
        comm=flags.delayed(values, comm) if acts else comm,
        timer=Timer(comm.Wtime),
        learners=values.learners,
        batch=values.batch or default_batch(values, comm.size),
        lag=values.lag,
        seed=values.seed + done,  # episodes that differ from those of the first run
        shards=values.shards,
        elastic=values.elastic,
        reducer=flags.reducer(values.reduce, allreduce),
        **own,
    )
    assert problem.play
    solved = problem.play.environment.solved
    members = None if acts else group
    return Training(problem, steps, members, values.evaluate_every, solved)


def default_batch(values: flags.FlagValues, size: int) -> int:
    """Return a rollout for each of ACTORS_PER_ROLLOUT actors, equally many by learner.

    With --lag=3 the bound of rollouts is at least the number of actors.
    """
    learners = values.learners
    each = -(-max(1, size - learners) // (ACTORS_PER_ROLLOUT * learners))
    return each * learners
