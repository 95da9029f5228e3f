"""Functions (allreduce, choice) that make the reducers of `names`."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from dml import extend
from dml.types import AllReduce, BadInput, Reducer
from dml.wire.reducers import names
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.dgc import dgc
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free
from dml.wire.reducers.lossy import Lossy, coded, compressed
from dml.wire.reducers.names import Choice
from dml.wire.reducers.one_bit_adam import one_bit_adam
from dml.wire.reducers.power_sgd import power_sgd, power_sgd_alternating
from dml.wire.reducers.random_k import random_k
from dml.wire.reducers.robust import centres, columns, mixing, selection
from dml.wire.reducers.robust.estimate import Estimator
from dml.wire.reducers.robust.reducer import MOMENTUM, robust
from dml.wire.reducers.robust.rule import Byzantine, Rule
from dml.wire.reducers.robust.slices import EXCHANGES, scatter
from dml.wire.reducers.transports import TRANSPORTS, automatic
from dml.wire.reducers.vote import vote

Make = Callable[[AllReduce, Choice], Reducer]


def make_exact(allreduce: AllReduce, choice: Choice) -> Reducer:
    refuse_feedback(choice)
    return exact(allreduce)


def make_order_free(allreduce: AllReduce, choice: Choice) -> Reducer:
    refuse_feedback(choice)
    return order_free(allreduce, *choice.arguments)


def refuse_feedback(choice: Choice) -> None:
    """Raise BadInput for feedback on a reducer that sends all of a gradient."""
    if choice.feedback:
        name = choice.name
        raise BadInput(
            f"expected {name} without +feedback, which adds what was not sent: {name} "
            "sends everything; leave it out"
        )


def codec(make: Callable[..., Codec]) -> Make:
    """Return the function that makes the reducer of a codec."""

    def make_codec(allreduce: AllReduce, choice: Choice) -> Reducer:
        made = make(*choice.arguments)
        transport = TRANSPORTS.get(choice.transport, automatic)
        return compressed(coded(made, transport), allreduce, choice.feedback)

    return make_codec


def named_codec(name: str) -> Callable[..., Codec]:
    """Return the function of a codec in the table of names."""
    module = import_module(f"dml.wire.reducers.codecs.{names.CODES[name]}")
    make: Callable[..., Codec] = getattr(module, name)
    return make


def own_codec(allreduce: AllReduce, choice: Choice) -> Reducer:
    """Return the reducer of a user's function () -> Codec."""
    make = extend.find(choice.name, {}, extend.CODECS)
    made = partial(extend.make, choice.name, make, Codec)
    return codec(made)(allreduce, choice)


def make_random_k(allreduce: AllReduce, choice: Choice) -> Reducer:
    (fraction,) = choice.arguments
    lossy = random_k(fraction, allreduce, choice.feedback)
    return compressed(lossy, allreduce, choice.feedback)


def low_rank(make: Callable[[int, AllReduce], Lossy]) -> Make:
    """Return the function that makes a reducer of low-rank approximations."""

    def make_low_rank(allreduce: AllReduce, choice: Choice) -> Reducer:
        (rank,) = choice.arguments
        lossy = make(rank, allreduce)
        return compressed(lossy, allreduce, choice.feedback)

    return make_low_rank


def make_vote(allreduce: AllReduce, choice: Choice) -> Reducer:
    if choice.feedback:
        raise BadInput(
            "expected vote without +feedback: a majority is not a sum of codes, so a "
            "rank has no error to add; leave it out, or pass sign+feedback"
        )
    return compressed(vote(allreduce), allreduce)


def with_memory(make: Callable[[Any, AllReduce], Reducer]) -> Make:
    """Return the function that makes a reducer with separate memory."""

    def make_reducer(allreduce: AllReduce, choice: Choice) -> Reducer:
        if choice.feedback:
            raise BadInput(
                f"expected {choice.name} without +feedback, which it always has; "
                "leave it out"
            )
        (number,) = choice.arguments
        return make(number, allreduce)

    return make_reducer


RULES: dict[str, Callable[..., Rule]] = {
    "mean": columns.mean,
    "median": columns.median,
    "trimmed_mean": columns.trimmed_mean,
    "sign_majority": columns.sign_majority,
    "krum": selection.krum,
    "multi_krum": selection.multi_krum,
    "bulyan": selection.bulyan,
    "mda": selection.mda,
    "geometric_median": centres.geometric_median,
    "centred_clipping": centres.centred_clipping,
}


def make_estimator(choice: Choice) -> Estimator:
    """Return the rule and the mixing before it."""
    known = mixing.MIXING
    before = [known[suffix] for suffix in choice.suffixes if suffix in known]
    return Estimator(RULES[choice.name](*choice.arguments), tuple(before))


def make_robust(
    allreduce: AllReduce, choice: Choice, byzantine: Byzantine | None = None
) -> Reducer:
    rule, before = make_estimator(choice)
    return robust(
        rule,
        *before,
        allreduce=allreduce,
        momentum=MOMENTUM if names.MOMENTUM in choice.suffixes else 0.0,
        exchange=EXCHANGES.get(choice.transport, scatter),
        byzantine=byzantine,
    )


MAKERS: dict[str, Make] = {
    "exact": make_exact,
    "order_free": make_order_free,
    "vote": make_vote,
    "one_bit_adam": with_memory(one_bit_adam),
    "dgc": with_memory(dgc),
    "random_k": make_random_k,
    "power_sgd": low_rank(power_sgd),
    "power_sgd_alternating": low_rank(power_sgd_alternating),
    **dict.fromkeys(RULES, make_robust),
    **{name: codec(named_codec(name)) for name in names.CODES},
}
