"""Environments by their names."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from dml import extend
from dml.environments.adapters import envpool, gymnasium, gymnax, minatar
from dml.environments.cartpole import CARTPOLE
from dml.environments.catch import CATCH
from dml.environments.grid_world import GRID_WORLD
from dml.types import BadInput, Environment

ENVIRONMENTS: Mapping[str, Environment] = {
    environment.name: environment for environment in (CARTPOLE, CATCH, GRID_WORLD)
}


ADAPTERS: Mapping[str, Callable[[str], Environment]] = {
    "gymnasium": gymnasium.find,
    "envpool": envpool.find,
    "gymnax": gymnax.find,
    "minatar": minatar.find,
}


def find(name: str) -> Environment:
    """Return an environment.

    Args:
      name: Key of ENVIRONMENTS, `PACKAGE:NAME` of ADAPTERS, `FILE.py:NAME`,
        `MODULE:NAME`, or name of an entry point; see `dml.extend`.

    Raises:
      BadInput: The name is unknown, or its package is not installed.
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    prefix, _, rest = name.partition(":")
    if prefix in ADAPTERS and rest:
        return ADAPTERS[prefix](rest)
    known = extend.names(ENVIRONMENTS, extend.ENVIRONMENTS)
    if not rest and name not in known:
        closest = get_close_matches(name, known, 1)
        raise BadInput(
            f"expected an environment of {', '.join(known)}, PACKAGE:NAME of "
            f"{', '.join(ADAPTERS)}, or FILE.py:NAME, got {name!r}; "
            + (f"pass {closest[0]}" if closest else "correct the name")
        )
    if closest := get_close_matches(prefix, ADAPTERS, 1, 0.8) if rest else []:
        raise BadInput(
            f"expected a package of {', '.join(ADAPTERS)}, or FILE.py:NAME, got "
            f"{name!r}; pass {closest[0]}:{rest}"
        )
    make = extend.find(name, {}, extend.ENVIRONMENTS)
    return extend.make(name, make, Environment)
