"""Reducers by name: NAME[:ARGUMENT][@TRANSPORT][+SUFFIX...].

exact, order_free, order_free:64, qsgd:4, terngrad, natural, int8@ring, sign+feedback,
one_bit@scatter+feedback, vote, one_bit_adam:100, top_k:0.01+feedback, dgc:0.001,
random_k:0.01, power_sgd:2+feedback, median:2, krum:2@gather, krum:2+nnm+momentum

The code of a user is FILE.py:NAME@TRANSPORT or FILE.py:NAME@TRANSPORT+feedback, where
NAME is a function () -> Codec.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from dml import extras
from dml.types import AllReduce, BadInput, Reducer, spec
from dml.types.ranges import Positive, Range
from dml.wire.reducers.exact import exact

FEEDBACK = "feedback"
LOSSLESS = ("exact", "order_free")
DIRECTIONS = ("dgc", "one_bit_adam")  # have momentum; the update rule is sgd
TRANSPORTS = ("gather", "scatter", "two_level", "ring")  # of codes; see `transports`
ROBUST = (
    "mean",
    "median",
    "trimmed_mean",
    "sign_majority",
    "krum",
    "multi_krum",
    "bulyan",
    "mda",
    "geometric_median",
    "centred_clipping",
)
EXCHANGES = ("scatter", "gather")  # of robust rules; see `robust.slices`
MIXING = ("nnm", "bucketing", "clipping")
MOMENTUM = "momentum"
LABEL_FLIP = "label_flip"  # an attack on the data, not on the terms
ATTACKS = (  # see `robust.attacks`
    *("sign_flip", "noise", "nan", "inf", "silent", "late", "copy", "mimic", "ipm"),
    *("alie", "optimal_ipm", "optimal_alie", LABEL_FLIP),
)


Attackers = Annotated[int, Range(0, 1 << 20)]


def plain() -> tuple[()]:
    return ()


def integers(bits: int = 32) -> tuple[int]:
    return (bits,)


def quantized(levels: int = 4) -> tuple[int]:
    return (levels,)


def after_warm_up(updates: int = 100) -> tuple[int]:
    return (updates,)


def sparse(fraction: float = 0.01) -> tuple[float]:
    return (fraction,)


def very_sparse(fraction: float = 0.001) -> tuple[float]:
    return (fraction,)


def low_rank(rank: int = 2) -> tuple[int]:
    return (rank,)


def against(f: Attackers = 1) -> tuple[int]:
    return (f,)


def within(f: Attackers = 1, radius: Positive | None = None) -> tuple[Any, ...]:
    return (f,) if radius is None else (f, radius)


REDUCERS: Mapping[str, Callable[..., tuple[Any, ...]]] = {  # arguments, with defaults
    "exact": plain,
    "order_free": integers,
    "qsgd": quantized,
    "terngrad": plain,
    "natural": plain,
    "int8": plain,
    "sign": plain,
    "one_bit": plain,
    "vote": plain,
    "one_bit_adam": after_warm_up,
    "top_k": sparse,
    "dgc": very_sparse,
    "random_k": sparse,
    "power_sgd": low_rank,
    "power_sgd_alternating": low_rank,
    **dict.fromkeys(ROBUST, against),
    "centred_clipping": within,
}
CODES: Mapping[str, str] = {  # to modules of `codecs`, with a function of this name
    "qsgd": "levels",
    "terngrad": "levels",
    "natural": "powers",
    "int8": "levels",
    "sign": "signs",
    "one_bit": "signs",
    "top_k": "largest",
}


class Choice(NamedTuple):
    """A reducer that a text names."""

    name: str
    arguments: tuple[Any, ...]
    transport: str  # empty: the default
    suffixes: tuple[str, ...] = ()

    @property
    def feedback(self) -> bool:
        """Whether the errors of earlier updates are added."""
        return FEEDBACK in self.suffixes


EXACT = Choice("exact", (), "")


def is_name(text: str) -> bool:
    """Return whether a text begins with a name of REDUCERS."""
    return spec.name_of(text.partition("+")[0].partition("@")[0]) in REDUCERS


def own_code(text: str) -> Choice | None:
    """Return the code of a user with its transport; None if a text names none."""
    code, _, suffix = text.rpartition("+")
    suffixes = (suffix,) if code and suffix == FEEDBACK else ()
    name, _, transport = (code if suffixes else text).rpartition("@")
    if is_name(text) or not name or transport not in TRANSPORTS:
        return None
    return Choice(name, (), transport, suffixes)


def is_lossy(text: str) -> bool:
    """Return whether a text names a reducer that sends less than the gradient."""
    if own_code(text):
        return True
    return is_name(text) and parse(text).name not in (*LOSSLESS, *ROBUST)


def is_mean(text: str) -> bool:
    """Return whether a text names a mean of any vectors, also of parameters.

    It is neither compressed nor a mean of momentum.
    """
    if not is_name(text):
        return not is_lossy(text)
    return not is_lossy(text) and MOMENTUM not in parse(text).suffixes


def has_momentum(text: str) -> bool:
    """Return whether a text names a reducer whose result is an update direction."""
    return is_name(text) and parse(text).name in DIRECTIONS


def parse(text: str) -> Choice:
    """Return the reducer that a text names; raise BadInput if there is none."""
    code, *suffixes = text.split("+")
    code, at, transport = code.partition("@")
    name = spec.name_of(code)
    arguments = spec.call(code, REDUCERS, "a reducer")
    check_suffixes(name, suffixes, text)
    if at:
        check_transport(name, code, transport, text)
    return Choice(name, arguments, transport, tuple(suffixes))


def check_suffixes(name: str, suffixes: Sequence[str], text: str) -> None:
    """Raise BadInput for a suffix that a reducer does not have, or has twice."""
    known = (*MIXING, MOMENTUM) if name in ROBUST else (FEEDBACK,)
    for suffix in suffixes:
        if suffix not in known or suffixes.count(suffix) > 1:
            raise BadInput(
                f"expected {name} with {', '.join('+' + each for each in known)} or "
                f"nothing, each at most once, got {text!r}; correct it"
            )


def check_transport(name: str, code: str, transport: str, text: str) -> None:
    """Raise BadInput for a transport that a reducer does not have."""
    if name not in (*CODES, *ROBUST):
        raise BadInput(
            f"expected @{transport} on a reducer of {', '.join((*CODES, *ROBUST))}, "
            f"got {text!r}; leave it out, or pass --allreduce"
        )
    known = EXCHANGES if name in ROBUST else TRANSPORTS
    if transport not in known:
        raise BadInput(
            f"expected {code}@ and a transport of {', '.join(known)}, got {text!r}; "
            "correct it"
        )


def reducer(text: str, allreduce: AllReduce, byzantine: Any = None) -> Reducer:
    """Return the reducer that a text names.

    Args:
      text: NAME[:ARGUMENT][@TRANSPORT][+SUFFIX...].
      allreduce: Sums buffers; a value of `dml.wire.collectives.ALLREDUCE`.
      byzantine: Attack on the terms, a `robust.Byzantine`; None: none. The exact sum is
        then the robust rule `mean`.
    """
    own = own_code(text)
    choice = own or parse(text)
    if choice == EXACT and byzantine is None:
        return exact(allreduce)
    # imported at the first use: most reducers need a compiler of kernels
    makers = extras.load("dml.wire.reducers.makers")
    made: Reducer
    if byzantine is None:
        make = makers.own_codec if own else makers.MAKERS[choice.name]
        made = make(allreduce, choice)
        return made
    if choice.name == "exact":
        choice = Choice("mean", (0,), "")
    if choice.name not in ROBUST:
        raise BadInput(
            f"expected --reduce=exact or a reducer of {', '.join(ROBUST)} with an "
            f"attack, got --reduce={text}; pass one of them"
        )
    made = makers.make_robust(allreduce, choice, byzantine)
    return made


def estimator(text: str) -> Any:
    """Return the `robust.estimate.Estimator` that a text names; None for `exact`.

    Raises:
      BadInput: The text names no robust rule, or one with momentum or a transport.
    """
    choice = parse(text)
    if choice == EXACT:
        return None
    if choice.name not in ROBUST or choice.transport or MOMENTUM in choice.suffixes:
        raise BadInput(
            f"expected exact or a rule of {', '.join(ROBUST)}, without a transport or "
            f"+{MOMENTUM}, for the terms of groups, got {text!r}; correct --reduce"
        )
    return extras.load("dml.wire.reducers.makers").make_estimator(choice)
