"""The arguments of every strategy that train.py offers.

A strategy is called as `strategy(problem, batches, update, *, comm, timer, **options)`.
Parameters without a default receive a value by their name; --options sets others.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from lab import adversaries, flags, options, readers, timelines
from lab.training import Training

from dml.problems import Entry, make_update
from dml.strategies import STRATEGIES, entry_of, strategy
from dml.strategies.server.roles import Roles, roles
from dml.strategies.server.server import Setup
from dml.strategies.server.tables import as_table
from dml.strategies.server.workers import PUSH, STOP, WorkerOptions
from dml.strategies.shared.workers import Descent
from dml.types import AllReduce, BadInput, CountedComm, Problem, Reducer
from dml.wire.comm.once import once
from dml.wire.mesh import devices
from dml.wire.plans.codes.coding import DEFAULT, make_code
from dml.wire.reducers import names as reducer_names
from dml.wire.reducers.checked import checked
from dml.wire.server.consistency import Choice, consistency

# Strategies with a parameter that no flag sets, or with data of another kind.
OTHERS = (
    *("hybrid", "impala", "seed", "apex"),
    *("hogwild_private", "cyclades", "delayed", "rotation"),
)
NAMES = [name for name in STRATEGIES if name not in OTHERS]
ON_DEVICES = [name for name in NAMES if STRATEGIES[name].devices]
# Parameters of a strategy that a flag determines; a strategy without them ignores it.
READ_BY = {
    "allreduce": ("allreduce", "reducer"),
    "reduce": ("reducer", "rule", "setup"),
    **dict.fromkeys(("servers", "consistency", "staleness"), ("setup",)),
}
OF_MINIBATCHES = ("batch", "optimizer", "skew", "attack")  # flags
AVERAGING = 4  # updates between two averages of `local`


def training(values: flags.FlagValues, entry: Entry, comm: CountedComm) -> Training:
    """Return the Steps of the flags on this rank."""
    name, problem = values.strategy, entry.make()
    if name in NAMES:
        flags.check_reduce(values.reduce, name, values.optimizer)
        terms = [each for each in NAMES if STRATEGIES[each].terms]
        adversaries.check_strategy(values, terms)
    function = strategy(name, problem, comm.size)
    check_read(values, function)
    own = dict(entry.own.get(name, {}))
    own |= options.parse(values.options, name, options.settable(function))
    has = partial(options.takes, function)
    if adversaries.has_copies(function):
        own["rule"] = reducer_names.estimator(values.reduce)
    if has(["byzantine"]):
        own["byzantine"] = adversaries.byzantine(values)
    own = options.complete(name, function, offered(values, entry, comm), own)
    steps, every = values.steps, values.evaluate_every
    batches = read_batches(values, entry, problem)
    if values.attack or values.attackers or values.skew:
        workers = own.get("workers") or comm.size
        if has(["setup"]):
            workers = serving(values, comm).workers
        adversaries.check(values, workers)
        batch, parts = values.batch or entry.batch, workers
        if adversaries.has_copies(function):
            parts = make_code(own.get("code", DEFAULT), workers).parts
        problem, batches = adversaries.shared_data(
            values, problem, batches, parts, (batch, batch * steps, 0)
        )
    if has(["setup"]):  # one Step per epoch, at whose end all ranks evaluate
        key, call = tuple(map(id, problem)), partial(as_table, problem)
        problem = once(comm, "problem of a table", key, call)
        problem = attacked(values, problem, comm)
        length = min(every or steps, steps)
        own, steps, every = own | {"every": length}, -(-steps // length), 1
    # virtual ranks have a virtual clock; strategies on devices use the real one
    clock = time.perf_counter if name in ON_DEVICES else comm.Wtime
    timer = timelines.timer(comm, clock)
    rule = choose_update(values, entry, problem, has(["setup"]))
    taken = function(problem, batches, rule, comm=comm, timer=timer, **own)
    return Training(problem, islice(taken, steps), every)


def check_read(values: flags.FlagValues, function: Callable[..., Any]) -> None:
    """Raise BadInput for a flag that is set and that the strategy does not read."""
    for name, parameters in READ_BY.items():
        if readers.is_set(values, name) and not options.takes(function, parameters):
            others = options.readers(NAMES, parameters)
            readers.check(values, "strategy", {name: others})
    if entry_of(values.strategy).epochs:
        others = [each for each in NAMES if not STRATEGIES[each].epochs]
        readers.check(values, "strategy", dict.fromkeys(OF_MINIBATCHES, others))
    update = inspect.signature(function).parameters.get("update")
    if update is not None and update.default is None:
        for name in ("optimizer", "lr"):
            if readers.is_set(values, name):
                raise BadInput(
                    f"expected a strategy with an optimizer for --{name}, got "
                    f"--strategy={values.strategy}; leave --{name} out"
                )
    readers.check_consistency(values)


def serving(values: flags.FlagValues, comm: CountedComm) -> Roles:
    """Return which ranks are workers and which are servers."""
    return roles(comm.size, values.servers, False)


def attacked(values: flags.FlagValues, problem: Problem, comm: CountedComm) -> Problem:
    """Return the problem of this rank, which may be a Byzantine worker."""
    made, workers = adversaries.byzantine(values), serving(values, comm).workers
    if made and not made.attack.forge and comm.rank in made.workers(workers):
        return adversaries.with_own_attack(problem, made, comm.rank)
    return problem


def read_batches(
    values: flags.FlagValues, entry: Entry, problem: Problem
) -> Iterable[Any]:
    """Return the indices of each minibatch, or the order of each epoch."""
    if entry_of(values.strategy).epochs:
        order = entry.orders(problem, values.seed)
    else:
        order = entry.batches(problem, values.batch or entry.batch, values.seed)
    return islice(order, values.steps)


def choose_update(
    values: flags.FlagValues, entry: Entry, problem: Problem, served: bool
) -> Any:
    """Return the optimizer, or the rule of rows, of --optimizer and --lr.

    Args:
      values: The flags.
      entry: Entry of the problem.
      problem: The problem.
      served: Whether servers apply it.
    """
    rate = values.lr or entry.rate
    if entry_of(values.strategy).epochs:
        return Descent(lambda epoch: rate)
    if values.optimizer or values.lr:
        return make_update(problem, values.optimizer or "sgd", rate)
    if served and entry.served:
        return entry.served
    return entry.update


def offered(
    values: flags.FlagValues, entry: Entry, comm: CountedComm
) -> Mapping[str, Callable[[], Any]]:
    """Return () -> value for each parameter that a strategy may require."""

    def allreduce() -> AllReduce:
        return flags.allreduce(values.allreduce, values, comm.size)

    def reducer_with(attack: Any) -> Reducer:
        made = flags.reducer(values.reduce, allreduce(), attack)
        return checked(made, values.reduce) if values.check else made

    def reducer() -> Reducer:
        made = reducer_with(adversaries.byzantine(values))
        flags.check_terms(made, values.reduce, comm.size)
        return made

    def setup() -> Setup:
        servers = serving(values, comm)
        choice = Choice(values.staleness)
        rule = consistency(values.consistency, choice, servers.workers)
        attack = adversaries.byzantine(values)
        adversaries.check_server(attack, rule)
        # attackers push their own wrong gradients, unless they know those of others
        made = reducer_with(attack if attack and attack.attack.forge else None)
        options = WorkerOptions(on_nonfinite=PUSH if attack else STOP)
        return Setup(servers, rule, worker_options=options, reducer=made)

    return {
        "allreduce": allreduce,
        "reducer": reducer,
        "batch": lambda: values.batch or entry.batch,
        "every": lambda: AVERAGING,
        "axes": lambda: devices.mesh(data=0),
        "setup": setup,
    }
