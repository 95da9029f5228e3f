"""Strategies for deep networks by name, and the flags that each reads."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lab import adversaries, flags, readers
import jax

from dml import extend
from dml.strategies import DECENTRALISED, strategy
from dml.strategies.kfac.plan import initial_curvature
from dml.types import BadInput, CountedComm, Problem, Step
from dml.update import muon
from dml.update.curvature import Rule
from dml.update.dense import Optimizer
from dml.wire.mesh import devices
from dml.wire.plans.coding import make_code
from dml.wire.reducers import names as reducer_names
from studies.deep import hybrid as deep_hybrid
from studies.deep.setup import Setup, output_names

OTHERS = ("easgd", "diloco", "async_diloco")  # without topology
MIXING = [name for name in DECENTRALISED if name not in OTHERS]
OUTER = ["outer_every", "outer_lr", "outer_momentum"]
STREAMING = ["fragments", "delay", "keep"]  # flags of diloco
ARRIVALS = ["aggregation_count", "momentum_every", "discount", "dynamic"]
CURVATURE = ["damping", "average", "curvature_every", "inverses_every", "limit"]
ASYNCHRONOUS = ["ad_psgd", "async_diloco"]


def serial(setup: Setup) -> dict[str, Any]:
    return setup.options


def synchronous(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"bucket_mb": values.bucket_mb, "noise": values.noise}
    own |= {"shards": values.shards, "commit": setup.commit}
    return setup.wire | setup.options | own


def owned(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"shards": values.shards, "clip": values.clip}
    if values.optimizer == "muon":
        own["costs"] = partial(muon.costs, output_names(setup.problem.model))
    return setup.wire | setup.options | own


def kfac(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"shards": values.shards, "fraction": values.fraction or 1.0}
    return setup.wire | setup.options | own | {"rule": curvature_rule(values)}


def curvature_rule(values: flags.FlagValues) -> Rule:
    return Rule(*(values[name].value for name in CURVATURE))


def coded(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"code": values.code, "workers": values.shards, "memory": setup.memory}
    own["rule"] = reducer_names.estimator(values.reduce)
    own["byzantine"] = adversaries.byzantine(values)
    return own | {"state": setup.state, "prefetch": setup.prefetch}


def offload(setup: Setup) -> dict[str, Any]:
    own = {"device_mb": setup.values.device_mb, "state": setup.state}
    return setup.wire | own | {"prefetch": setup.prefetch}


def mesh(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"call": values.call, "zero": values.zero, "noise": values.noise}
    return {"axes": devices.mesh(data=0)} | setup.options | own


def local(setup: Setup) -> dict[str, Any]:
    after = max(0, setup.values.local_after - setup.done)
    own = {"every": setup.values.local_every, "after": after}
    return setup.wire | setup.options | own


def poseidon(setup: Setup) -> dict[str, Any]:
    values = setup.values
    allreduce = flags.allreduce(values.allreduce, values, setup.comm.size)
    own = {"scheme": values.scheme, "bucket_mb": values.bucket_mb}
    return {"allreduce": allreduce} | setup.options | own


def replicas(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {"every": values.mix_every, "consensus": values.consensus}
    if values.topology:
        own["topology"] = values.topology
    return {"memory": setup.memory} | setup.options | own


def ad_psgd(setup: Setup) -> dict[str, Any]:
    values = setup.values
    return replicas(setup) | {
        "barrier_every": values.barrier_every,
        "seed": values.seed,
    }


def async_diloco(setup: Setup) -> dict[str, Any]:
    names = [*OUTER, *ARRIVALS, "barrier_every"]
    own = {name: setup.values[name].value for name in names}
    return {"memory": setup.memory} | setup.options | own


def easgd(setup: Setup) -> dict[str, Any]:
    name = setup.values.allreduce
    allreduce = flags.allreduce(name, setup.values, setup.comm.size)
    return replicas(setup) | {"allreduce": allreduce}


def diloco(setup: Setup) -> dict[str, Any]:
    values = setup.values
    own = {name: values[name].value for name in (*OUTER, *STREAMING)}
    own["consensus"] = values.consensus
    return setup.wire | setup.options | own


# Each strategy's own arguments.
STRATEGIES: dict[str, Callable[[Setup], dict[str, Any]]] = {
    "serial": serial,
    "synchronous": synchronous,
    "owned": owned,
    "kfac": kfac,
    "coded": coded,
    "offload": offload,
    "mesh": mesh,
    "local": local,
    "poseidon": poseidon,
    "hybrid": deep_hybrid.on_axes,
    **dict.fromkeys(MIXING, replicas),
    "ad_psgd": ad_psgd,
    "async_diloco": async_diloco,
    "easgd": easgd,
    "diloco": diloco,
}
# Strategies that call --allreduce.
SUMMING = ["synchronous", "owned", "kfac", "offload", "local", "poseidon", "diloco"]
SUMMING += ["easgd"]
ON_DEVICES = ("mesh", "hybrid")  # strategies on JAX devices instead of ranks
# Strategies that read a flag, if not all do.
READERS = {
    "bucket_mb": ["synchronous", "poseidon"],
    "scheme": ["poseidon"],
    "shards": ["synchronous", "owned", "kfac", "coded"],
    **dict.fromkeys(("fraction", *CURVATURE), ["kfac"]),
    "code": ["coded"],
    "device_mb": ["offload"],
    "zero": ["mesh", "hybrid"],
    "call": ["mesh"],
    **dict.fromkeys(("local_every", "local_after"), ["local"]),
    **dict.fromkeys(deep_hybrid.HYBRID_FLAGS, ["hybrid"]),
    "topology": MIXING,
    "mix_every": [*MIXING, "easgd"],
    "consensus": [*MIXING, "easgd", "diloco"],
    **dict.fromkeys(OUTER, ["diloco", "async_diloco"]),
    **dict.fromkeys(STREAMING, ["diloco"]),
    **dict.fromkeys(ARRIVALS, ["async_diloco"]),
    "barrier_every": ASYNCHRONOUS,
}


def steps(setup: Setup) -> Iterator[Step]:
    """Return the Steps of --strategy."""
    name, problem = setup.values.strategy, setup.problem
    train_by = strategy(name, problem, setup.comm.size if name == "serial" else 1)
    return train_by(
        problem,
        setup.batches,
        setup.update,
        comm=setup.comm,
        timer=setup.timer,
        **(
            STRATEGIES[name](setup)
            if name in STRATEGIES
            else user_arguments(setup, train_by)
        ),
    )


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


def user_arguments(setup: Setup, train_by: Callable[..., Any]) -> dict[str, Any]:
    """Return those arguments that a user's strategy has as parameters."""
    arguments = extend.accepted(train_by, setup.wire | setup.options)
    if setup.state is not None and "state" not in arguments:
        raise BadInput(
            f"expected a strategy with the parameter state for --resume, got "
            f"{setup.values.strategy}; add it, or start a new run"
        )
    return arguments


def workers(values: flags.FlagValues, comm: CountedComm) -> int:
    """Return the number of equal shares of a minibatch: ranks, or all devices."""
    if values.strategy == "hybrid":
        return 1  # hybrid puts a remainder into one more microbatch
    return len(jax.devices()) if values.strategy == "mesh" else comm.size


def parts(values: flags.FlagValues, workers: int) -> int:
    """Return the number of parts of a minibatch with different examples."""
    count = values.shards or workers
    return make_code(values.code, count).parts if values.strategy == "coded" else count


def step_count(values: flags.FlagValues, updates: int) -> int:
    """Return the number of Steps of `updates` updates; a Step may have several."""
    if values.strategy in ASYNCHRONOUS:
        return -(-updates // (values.barrier_every or updates or 1))
    if values.strategy in DECENTRALISED:
        one_by_one = values.fragments > 1 or values.delay > 0
        every = 1 if one_by_one else values.outer_every
        every = every if values.strategy == "diloco" else values.mix_every
        return -(-updates // every)
    if values.strategy != "local":
        return updates
    single = min(values.local_after, updates)
    return single - (single - updates) // values.local_every


def check(values: flags.FlagValues, workers: int) -> None:
    """Raise BadInput for flags that the strategy does not read or support."""
    shares = parts(values, workers)
    unit = "logical shards" if values.shards else "workers"
    if values.strategy == "coded":
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
    readers.check(values, "strategy", READERS)
    if values.strategy in STRATEGIES:  # others are of a user
        readers.check(values, "strategy", {"allreduce": SUMMING})
    if values.accumulate > 1 and values.strategy in ("coded", "offload"):
        raise BadInput(
            f"expected --accumulate=1 with --strategy={values.strategy}, got "
            f"--accumulate={values.accumulate}; leave it out"
        )
    if values.strategy in STRATEGIES:
        attacked = ["synchronous", "local", "coded", "diloco", "offload"]
        reducing = [*attacked, "owned", "kfac"]  # the last two need sums of parts
        flags.check_reduce(values.reduce, values.strategy, reducing, values.optimizer)
        adversaries.check_strategy(values, attacked)
    adversaries.check(values, values.shards or workers)
    if values.strategy in ("synchronous", "local", "offload"):
        adversaries.check_reducer(values, shares)
    if values.accumulate > 1 and values.strategy == "hybrid":
        raise BadInput(
            f"expected --microbatches with --strategy=hybrid, got --accumulate="
            f"{values.accumulate}; pass --microbatches={values.accumulate}"
        )
    if values.straggle and values.simulate and values.strategy in ON_DEVICES:
        raise BadInput(
            f"expected ranks that --straggle={values.straggle} delays, got devices of "
            "one process; leave it out, or pass --strategy=synchronous"
        )
    replicated = values.strategy in ("synchronous", "mesh") and values.zero < 3
    measurable = replicated and workers > 1
    if values.noise and not measurable:
        raise BadInput(
            "expected --noise with two workers or more that have full gradients, got "
            f"{workers} by --strategy={values.strategy} --zero={values.zero}; pass "
            "--strategy=synchronous and more ranks"
        )
