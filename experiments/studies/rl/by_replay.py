"""Training by prioritised replay: Ape-X."""

from typing import Any

from lab import flags

from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.types import CountedComm, Environment, Problem
from dml.update.dense import make
from studies.rl.contract import Training
from studies.rl.settings import Settings

EVALUATE_EVERY = 100  # updates, whose batches are smaller than those of rollouts


def problem(
    values: flags.FlagValues, environment: Environment, chosen: Settings
) -> Problem:
    """Return the problem of action values."""
    from dml.models.policies.q_learning import q_problem

    return q_problem(
        environment,
        copies=chosen.copies,
        length=chosen.length,
        widths=chosen.widths,
        seed=values.seed,
        **chosen.loss,
    )


def train(
    values: flags.FlagValues,
    problem: Problem,
    chosen: Settings,
    comm: CountedComm,
    saved: Any,
) -> Training:
    """Return the training of this rank; see `contract.Algorithm`."""
    done, state = (saved[0], saved[1]["state"]) if saved else (0, None)
    learns = comm.rank == 0
    group: Any = comm.Split(int(not learns), comm.rank)
    acts = comm.rank > values.replays
    explicit = values["evaluate_every"].present
    every = values.evaluate_every if explicit else EVALUATE_EVERY
    own = {"batch": values.batch} if values.batch else {}
    steps = strategy(values.algorithm, problem, comm.size)(
        problem,
        range(values.updates - done),
        make(chosen.optimizer, chosen.lr),
        comm=flags.delayed(values, comm) if acts else comm,
        timer=Timer(comm.Wtime),
        state=state,
        version=done,
        seed=values.seed + done,  # episodes that differ from those of the first run
        replays=values.replays,
        elastic=values.elastic,
        report_every=1,
        **{**chosen.replay, **own},
    )
    assert problem.play
    solved = problem.play.environment.solved
    return Training(problem, steps, group if learns else None, every, solved)
