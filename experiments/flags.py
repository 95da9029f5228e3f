"""The flags that experiments share, and the one way in and out of a command.

`define` makes an experiment's own set of flags, `parse` reads them, `ranks` calls the
program on every rank, and `run` ends a command: bad input is one line and exit code 2.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from absl import flags

from dml.types import BadInput, CountedComm

FlagValues = flags.FlagValues

integer, number, text = flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_string
switch, choice = flags.DEFINE_boolean, flags.DEFINE_enum

SHARED: dict[str, Callable[..., Any]] = {
    "out": partial(
        text, default=None, help="Run folder [runs/<experiment>/<UTC time>]."
    ),
    "seed": partial(integer, default=0, lower_bound=0, help="Seed of every draw."),
    "simulate": partial(
        integer, default=0, lower_bound=0, help="Virtual ranks; 0 runs on real ones."
    ),
    "network": partial(
        text,
        default="1e-6,1e-9,1e-10",
        help="Of virtual ranks: alpha,beta,gamma, seconds a message, a byte sent, "
        "a byte reduced.",
    ),
    "watchdog": partial(
        number, default=60.0, lower_bound=0, help="Seconds to wait in a call; 0 is off."
    ),
    "check": partial(
        switch, default=False, help="Compare buffers between ranks at every call."
    ),
    "group": partial(
        integer, default=0, lower_bound=0, help="Ranks in a group; 0 groups by host."
    ),
}


def define(*shared: str) -> FlagValues:
    """Return a set of flags: those of SHARED named here, to which one adds one's own.

    Each experiment has a set of its own (pass it as flag_values), so two experiments
    can be imported side by side, and no flag exists that its experiment doesn't use.
    """
    values = FlagValues()
    switch("help", False, "Show this.", flag_values=values)
    for name in shared:
        SHARED[name](name, flag_values=values)
    return values


def parse(values: FlagValues, argv: Sequence[str]) -> FlagValues:
    """Return values as argv sets them, whatever was parsed before."""
    values.unparse_flags()
    try:
        _, *extra = values(argv)
    except flags.Error as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if extra:
        raise BadInput(f"expected --flag=value, got {extra[0]!r}; --help lists them")
    if values.help:
        sys.stdout.write(f"{sys.modules['__main__'].__doc__}\n{values.get_help()}\n")
        sys.exit(0)
    return values


def chosen(values: FlagValues) -> dict[str, Any]:
    """Return every flag and its value, as config.json keeps them."""
    both = ("help", "flagfile", "undefok")  # absl's own
    return {k: v for k, v in values.flag_values_dict().items() if k not in both}


def network(values: FlagValues) -> tuple[float, float, float]:
    """Return alpha, beta and gamma of --network."""
    try:
        alpha, beta, gamma = map(float, values.network.split(","))
    except ValueError as error:
        raise BadInput(
            f"expected three numbers, got --network={values.network}; "
            "pass --network=alpha,beta,gamma in seconds"
        ) from error
    return alpha, beta, gamma


def ranks(program: Callable[[CountedComm], Any], values: FlagValues) -> list[Any]:
    """Call program(comm) on this rank, or on --simulate virtual ones; list results."""
    from dml.wire.messages import Metered, world

    if not values.simulate:
        return [program(Metered(world()))]
    from dml import sim

    uniform = sim.Uniform(*network(values))
    return sim.run(
        lambda comm: program(Metered(comm)), values.simulate, network=uniform
    )


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Call main(argv) as a command."""
    try:
        main(sys.argv)
    except BadInput as error:
        stop(error)


def stop(error: BadInput) -> NoReturn:
    """Print one line and exit with code 2."""
    # ← here the ranks meet, so that the first one prints and all of them exit
    line = " ".join(str(error).split())
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {line}\n")
    sys.exit(2)
