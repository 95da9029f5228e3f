"""Flags that only some choices read; set with another choice, they are refused."""

from collections.abc import Collection, Mapping, Sequence

from lab.shared_flags import FlagValues

from dml.types import BadInput
from dml.wire.server.consistency import CONSISTENCIES

# Readers of flags that several commands share.
HIERARCHICAL = dict.fromkeys(("group", "outside"), ["hierarchical"])  # of --allreduce
CONSISTENCY = {  # of --consistency
    "staleness": ["ssp", "essp"],
    "softsync": ["softsync"],
    "backup": ["backup"],
}
SERVER = (  # flags of parameter servers
    *("servers", "colocated", "replicas", "spares", "elastic", "consistency"),
    *CONSISTENCY,
    *("staleness_lr", "n_push", "n_fetch", "prefetch", "microbatches"),
    *("key_lists", "on_nonfinite"),
)


def is_set(values: FlagValues, name: str) -> bool:
    """Return whether a command has a flag, and its value is not the default."""
    return name in values and values[name].value != values[name].default


def check(
    values: FlagValues, choice: str, readers: Mapping[str, Collection[str]]
) -> None:
    """Raise BadInput for a flag that is set and that has no effect.

    Args:
      values: Flags.
      choice: Name of the flag that decides which others are read, such as "strategy".
      readers: The values of that flag with which a flag is read, by name of the flag.
    """
    got = values[choice].value
    for name, chosen in readers.items():
        if is_set(values, name) and got not in chosen:
            raise BadInput(
                f"expected --{choice}={' or '.join(chosen)} with --{name}="
                f"{values[name].value}, got --{choice}={got}; leave --{name} out"
            )


def check_consistency(values: FlagValues) -> None:
    """Raise BadInput for a flag that the consistency does not read.

    The consistency of a user may read all.
    """
    if values.consistency in CONSISTENCIES:
        check(values, "consistency", CONSISTENCY)


def check_virtual(values: FlagValues, read: Sequence[str], devices: bool) -> None:
    """Raise BadInput for a flag of virtual ranks that is set without such ranks.

    Args:
      values: Flags.
      read: Flags of virtual ranks that the command also reads without them.
      devices: Whether the virtual ranks are devices of one rank.
    """
    for name in ("network", "events", "virtual_seconds"):
        if not is_set(values, name) or name in read:
            continue
        if not values.simulate:
            raise BadInput(
                f"expected --simulate with --{name}={values[name].value}, got real "
                "ranks; pass --simulate=<number of ranks>"
            )
        if devices:
            raise BadInput(
                f"expected virtual ranks with --{name}={values[name].value}, got "
                f"devices of one rank; leave --{name} out"
            )
