"""Rules of byzantine.py, with the number of attackers left open."""

from collections.abc import Sequence

from dml import extend
from dml.types import BadInput
from dml.wire.reducers import makers, names
from dml.wire.reducers.robust.estimate import Estimator
from dml.wire.reducers.robust.mixing import MIXING
from dml.wire.reducers.robust.rule import Rule

OPEN = "F"  # in the argument of a rule: the number of attackers


def estimator(text: str, attackers: int) -> Estimator:
    """Return a rule and the mixing before it; raise BadInput if there is none.

    Args:
      text: Rule such as krum, krum+nnm or centred_clipping:F,0.5, whose F is replaced,
        or FILE.py:NAME+nnm with a function of the number of attackers.
      attackers: Number of attackers that the rule tolerates.
    """
    name, *suffixes = text.split("+")
    unknown = [suffix for suffix in suffixes if suffix not in MIXING]
    if unknown or len(set(suffixes)) < len(suffixes):
        raise BadInput(
            f"expected {name} with {', '.join('+' + each for each in MIXING)} or "
            f"nothing, each at most once, got {text!r}; correct --rules"
        )
    mixings = tuple(MIXING[suffix] for suffix in suffixes)
    return Estimator(rule(name, attackers), mixings)


def rule(text: str, attackers: int) -> Rule:
    """Return a rule without mixing; see `estimator`."""
    name, colon, argument = text.partition(":")
    if colon and name not in names.ROBUST or name not in names.ROBUST and "." in name:
        made: Rule = extend.make(
            text, extend.find(text, {}, extend.RULES), Rule, attackers
        )
        return made
    if name not in names.ROBUST:
        raise BadInput(
            f"expected --rules of {', '.join(names.ROBUST)}, or FILE.py:NAME, got "
            f"{text!r}; correct the name"
        )
    values = argument.split(",") if colon else [OPEN]
    filled = ",".join(str(attackers) if each == OPEN else each for each in values)
    choice = names.parse(f"{name}:{filled}")
    return makers.RULES[name](*choice.arguments)


def tolerates(text: str, attackers: int, workers: int) -> bool:
    """Return whether a rule has an estimate of the gradients of a number of workers."""
    try:
        estimator(text, attackers).check(workers)
    except BadInput:
        return False
    return True


def check(texts: Sequence[str], attackers: Sequence[int], honest: int) -> None:
    """Raise BadInput for an unknown rule, or one that tolerates none of the attackers.

    Args:
      texts: Rules.
      attackers: Numbers of attackers.
      honest: Number of honest workers.
    """
    fewest = min(attackers)
    for text in texts:
        estimator(text, fewest).check(honest + fewest)
