"""Arguments of strategies for deep networks.

A strategy receives those arguments of SHARED and those flags of OPTIONS that are
parameters of its signature. A new one needs no line here; --options sets its others.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from lab import adversaries, flags, options, readers
import jax

from dml.strategies import DECENTRALISED, entry_of, load, strategy
from dml.strategies import STRATEGIES as ALL
from dml.strategies.kfac.plan import initial_curvature
from dml.types import BadInput, CountedComm, Problem, Step
from dml.update import muon
from dml.update.curvature import CurvatureRule
from dml.update.dense import Optimizer
from dml.wire.mesh import devices
from dml.wire.plans.codes.coding import make_code
from dml.wire.reducers import names as reducer_names
from studies.deep import hybrid as deep_hybrid
from studies.deep.setup import Setup, output_names

FIELDS = ("gradient", "model", "model.layers")  # of the problem of a deep network
# Strategies without a state to resume, or with a rank that is no worker.
OTHERS = ("sharded", "scan", "server", "gradient_coding")
STRATEGIES = [
    name
    for name, entry in ALL.items()
    if {*entry.needs} <= {*FIELDS} and name not in OTHERS
]
ON_DEVICES = [name for name in STRATEGIES if ALL[name].devices]
CURVATURE = ["damping", "average", "curvature_every", "inverses_every", "limit"]
# Flags that set the parameter of their name.
OPTIONS = (
    *("bucket_mb", "scheme", "shards", "fraction", "code", "device_mb", "zero", "call"),
    *("topology", "consensus", "barrier_every", "fragments", "delay", "keep"),
    *("outer_every", "outer_lr", "outer_momentum"),
    *("aggregation_count", "momentum_every", "discount", "dynamic"),
    *("noise", "clip", "accumulate", "seed"),
)
# Flags of OPTIONS that are refused, or read, elsewhere.
FREE = ("noise", "clip", "accumulate", "seed")
# Values of other parameters.
SHARED: Mapping[str, Callable[[Setup], Any]] = {
    "reducer": lambda setup: setup.reducer,
    "allreduce": lambda setup: setup.allreduce,
    "byzantine": lambda setup: adversaries.byzantine(setup.values),
    "axes": lambda setup: devices.mesh(data=0),
    "commit": lambda setup: setup.commit,
    "prefetch": lambda setup: setup.prefetch,
    "state": lambda setup: setup.state,
    "memory": lambda setup: setup.memory,
    "workers": lambda setup: setup.values.shards,
}


def owned(setup: Setup) -> dict[str, Any]:
    if setup.values.optimizer != "muon":
        return {}
    return {"costs": partial(muon.costs, output_names(setup.problem.model))}


def kfac(setup: Setup) -> dict[str, Any]:
    values = setup.values
    rule = CurvatureRule(*(values[name].value for name in CURVATURE))
    return {"fraction": values.fraction or 1.0, "rule": rule}


def coded(setup: Setup) -> dict[str, Any]:
    return {"rule": reducer_names.estimator(setup.values.reduce)}


def local(setup: Setup) -> dict[str, Any]:
    after = max(0, setup.values.local_after - setup.done)
    return {"every": setup.values.local_every, "after": after}


def mixing(setup: Setup) -> dict[str, Any]:
    return {"every": setup.values.mix_every}


# Arguments of one strategy.
OWN: Mapping[str, Callable[[Setup], dict[str, Any]]] = {
    **{"owned": owned, "kfac": kfac, "coded": coded, "local": local},
    **dict.fromkeys(
        [n for n in DECENTRALISED if n not in ("diloco", "async_diloco")], mixing
    ),
    "hybrid": deep_hybrid.on_axes,
}
# Flags of these arguments.
READERS = {
    **dict.fromkeys(CURVATURE, ["kfac"]),
    **dict.fromkeys(("local_every", "local_after"), ["local"]),
    **dict.fromkeys(deep_hybrid.HYBRID_FLAGS, ["hybrid"]),
    "mix_every": [name for name, own in OWN.items() if own is mixing],
}
# Parameters of which a strategy must have one if a flag is set.
READ_BY = {
    "allreduce": ("allreduce", "reducer"),
    "reduce": ("reducer", "rule"),
    **{flag: (flag,) for flag in OPTIONS if flag not in FREE},
    "shards": ("shards", "workers"),
}


def steps(setup: Setup) -> Iterator[Step]:
    """Return the Steps of --strategy."""
    name, problem = setup.values.strategy, setup.problem
    train_by = strategy(name, problem, setup.comm.size)
    return train_by(
        problem,
        setup.batches,
        setup.update,
        comm=setup.comm,
        timer=setup.timer,
        **arguments(setup, train_by),
    )


def arguments(setup: Setup, train_by: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a strategy, by the names of its parameters."""
    values, name = setup.values, setup.values.strategy
    named = inspect.signature(train_by).parameters
    if setup.state is not None and "state" not in named:
        raise BadInput(
            f"expected a strategy with the parameter state for --resume, got "
            f"{name}; add it, or start a new run"
        )
    own = OWN[name](setup) if name in OWN else {}
    for each in named:
        if each in own:
            continue
        if each in SHARED:
            own[each] = SHARED[each](setup)
        elif each in OPTIONS and values[each].value != "":
            own[each] = values[each].value
    known = options.settable(train_by)
    others = {each: known[each] for each in known if each not in own}
    own |= options.parse(values.options, name, others)
    return options.complete(name, train_by, {}, own)


def initial_state(values: flags.FlagValues, problem: Problem, update: Optimizer) -> Any:
    """Return the `state` of a Step of --strategy, or its shapes.

    Args:
      values: Flags.
      problem: Problem to train.
      update: Optimizer.
    """
    state = jax.eval_shape(update.init, problem.params)
    if values.strategy != "kfac":
        return state
    return {"optimizer": state, "curvature": initial_curvature(problem)}


def has(values: flags.FlagValues, *parameters: str) -> bool:
    """Return whether --strategy has one of the parameters."""
    return options.takes(load(values.strategy), parameters)


def workers(values: flags.FlagValues, comm: CountedComm) -> int:
    """Return the number of equal shares of a minibatch: ranks, or all devices."""
    if has(values, "pipeline"):
        return 1  # a remainder is one more microbatch
    return len(jax.devices()) if entry_of(values.strategy).devices else comm.size


def parts(values: flags.FlagValues, workers: int) -> int:
    """Return the number of parts of a minibatch with different examples."""
    count = values.shards or workers
    copies = adversaries.has_copies(load(values.strategy))
    return make_code(values.code, count).parts if copies else count


def step_count(values: flags.FlagValues, updates: int) -> int:
    """Return the number of Steps of `updates` updates; a Step may have several."""
    if has(values, "barrier_every"):
        return -(-updates // (values.barrier_every or updates or 1))
    if has(values, "outer_every"):
        one_by_one = values.fragments > 1 or values.delay > 0
        return updates if one_by_one else -(-updates // values.outer_every)
    if has(values, "after"):
        single = min(values.local_after, updates)
        return single - (single - updates) // values.local_every
    if values.strategy in DECENTRALISED:
        return -(-updates // values.mix_every)
    return updates


def check(values: flags.FlagValues, workers: int) -> None:
    """Raise BadInput for flags that the strategy does not read or support."""
    shares = parts(values, workers)
    unit = "logical shards" if values.shards else "workers"
    if adversaries.has_copies(load(values.strategy)):
        unit = f"parts of {values.code}"
    units = shares * values.accumulate
    if values.batch % units:
        lower, upper = values.batch - values.batch % units, values.batch // units + 1
        nearest = [size for size in (lower, upper * units) if size]
        raise BadInput(
            f"expected --batch divisible by {shares} {unit} x {values.accumulate} "
            f"microbatches, got {values.batch}; pass "
            f"--batch={' or '.join(map(str, nearest))}"
        )
    check_read(values)
    if values.accumulate > 1 and not has(values, "accumulate"):
        other = f"pass --microbatches={values.accumulate} instead"
        raise BadInput(
            f"expected --accumulate=1 with --strategy={values.strategy}, got "
            f"--accumulate={values.accumulate}; "
            + (other if has(values, "pipeline") else "leave it out")
        )
    if values.strategy in STRATEGIES:  # others are of a user
        flags.check_reduce(values.reduce, values.strategy, values.optimizer)
        terms = [name for name in STRATEGIES if ALL[name].terms]
        adversaries.check_strategy(values, terms)
    adversaries.check(values, values.shards or workers)
    if entry_of(values.strategy).terms and has(values, "reducer"):
        adversaries.check_reducer(values, shares)
    if values.straggle and values.simulate and values.strategy in ON_DEVICES:
        raise BadInput(
            f"expected ranks that --straggle={values.straggle} delays, got devices of "
            "one process; leave it out, or pass --strategy=synchronous"
        )
    replicated = has(values, "noise") and values.zero < 3
    measurable = replicated and workers > 1
    if values.noise and not measurable:
        raise BadInput(
            "expected --noise with two workers or more that have full gradients, got "
            f"{workers} by --strategy={values.strategy} --zero={values.zero}; pass "
            "--strategy=synchronous and more ranks"
        )


def check_read(values: flags.FlagValues) -> None:
    """Raise BadInput for a flag that is set and that the strategy does not read."""
    readers.check(values, "strategy", READERS)
    for flag, parameters in READ_BY.items():
        if readers.is_set(values, flag) and not options.takes(
            load(values.strategy), parameters
        ):
            names = options.readers(STRATEGIES, parameters)
            readers.check(values, "strategy", {flag: names})
