"""Functions (allreduce, argument, feedback) that make the reducers of `names`."""

from collections.abc import Callable
from typing import Any

from dml.types import AllReduce, BadInput, Reducer
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.largest import top_k
from dml.wire.reducers.codecs.levels import int8, qsgd, terngrad
from dml.wire.reducers.codecs.powers import natural
from dml.wire.reducers.codecs.signs import one_bit, sign
from dml.wire.reducers.exact import exact
from dml.wire.reducers.fixed_point import order_free
from dml.wire.reducers.lossy import compressed, gathered
from dml.wire.reducers.power_sgd import power_sgd
from dml.wire.reducers.random_k import random_k

Make = Callable[[AllReduce, Any, bool], Reducer]


def make_exact(allreduce: AllReduce, argument: Any, feedback: bool) -> Reducer:
    refuse_feedback("exact", feedback)
    return exact(allreduce)


def make_order_free(allreduce: AllReduce, bits: int, feedback: bool) -> Reducer:
    refuse_feedback("order_free", feedback)
    return order_free(allreduce, bits)


def refuse_feedback(name: str, feedback: bool) -> None:
    """Raise BadInput for feedback on a reducer that sends all of a gradient."""
    if feedback:
        raise BadInput(
            f"expected {name} without +feedback, which adds what was not sent: {name} "
            "sends everything; leave it out"
        )


def codec(make: Callable[..., Codec]) -> Make:
    """Return the function that makes the reducer of gathered codes."""

    def make_codec(allreduce: AllReduce, argument: Any, feedback: bool) -> Reducer:
        made = make() if argument is None else make(argument)
        return compressed(gathered(made), allreduce, feedback)

    return make_codec


def make_random_k(allreduce: AllReduce, fraction: float, feedback: bool) -> Reducer:
    lossy = random_k(fraction, allreduce, feedback)
    return compressed(lossy, allreduce, feedback)


def make_power_sgd(allreduce: AllReduce, rank: int, feedback: bool) -> Reducer:
    return compressed(power_sgd(rank, allreduce), allreduce, feedback)


MAKERS: dict[str, Make] = {
    "exact": make_exact,
    "order_free": make_order_free,
    "qsgd": codec(qsgd),
    "terngrad": codec(terngrad),
    "natural": codec(natural),
    "int8": codec(int8),
    "sign": codec(sign),
    "one_bit": codec(one_bit),
    "top_k": codec(top_k),
    "random_k": make_random_k,
    "power_sgd": make_power_sgd,
}
