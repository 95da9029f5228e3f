"""Environments by their names."""

from collections.abc import Mapping
from difflib import get_close_matches

from dml import extend
from dml.environments.cartpole import CARTPOLE
from dml.environments.catch import CATCH
from dml.types import BadInput, Environment

ENVIRONMENTS: Mapping[str, Environment] = {"cartpole": CARTPOLE, "catch": CATCH}


def find(name: str) -> Environment:
    """Return an environment.

    Args:
      name: Key of ENVIRONMENTS, `FILE.py:NAME`, `MODULE:NAME`, or name of an entry
        point; see `dml.extend`.

    Raises:
      BadInput: There is no such environment.
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    known = extend.names(ENVIRONMENTS, extend.ENVIRONMENTS)
    if ":" not in name and name not in known:
        closest = get_close_matches(name, known, 1)
        raise BadInput(
            f"expected an environment of {', '.join(known)}, or FILE.py:NAME, got "
            f"{name!r}; " + (f"pass {closest[0]}" if closest else "correct the name")
        )
    make = extend.find(name, {}, extend.ENVIRONMENTS)
    return extend.make(name, make, Environment)
