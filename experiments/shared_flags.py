"""The flags that experiments share, by name; `flags.define` takes those one needs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from absl import flags

FlagValues = flags.FlagValues
integer, number, text = flags.DEFINE_integer, flags.DEFINE_float, flags.DEFINE_string
switch, choice = flags.DEFINE_boolean, flags.DEFINE_enum

VIRTUAL = ("simulate", "network", "events", "virtual_seconds")
SEEDS = 1 << 63  # as many as all generators of random numbers take
MOST = 1e6  # of each term of energy and cost: beyond, sums are no numbers
TERMS = ("watts", "pue", "grid", "core_price", "gpu_price")  # of energy and cost
WRITTEN = ("out", "csv", "tensorboard", *TERMS)  # by every experiment's run
OUTSIDE = ["star", "tree", "butterfly", "halving_doubling", "ring"]
SHARED: dict[str, Callable[..., Any]] = {
    "out": partial(
        text, default=None, help="Run folder [runs/<experiment>/<UTC time>]."
    ),
    "seed": partial(
        integer, default=0, lower_bound=0, upper_bound=SEEDS - 1, help="Of every draw."
    ),
    "simulate": partial(
        integer,
        default=0,
        lower_bound=0,
        upper_bound=1 << 20,
        help="Virtual ranks; 0 runs on real ones.",
    ),
    "network": partial(
        text,
        default="1e-6,1e-9,1e-10",
        help="Of virtual ranks: alpha,beta,gamma (seconds a message, a byte sent, a "
        "byte reduced), or hosts:16x8, torus:8x8x8, fat_tree, dragonfly, slim_fly:5, "
        "ring, graph:FILE, each also with @alpha,beta,gamma.",
    ),
    "events": partial(
        text,
        default="",
        help="Trouble of virtual ranks: die:RANK@T; die_host:HOST@T; "
        "slow:RANKS-RANKS*FACTOR@T..T; cut:RANKS-RANKS@T..T; cut_link:LINK@T..T.",
    ),
    "virtual_seconds": partial(
        number, default=1e9, lower_bound=0, help="After which a virtual run is ended."
    ),
    "straggle": partial(
        text, default="", help="Law of what an update's computing takes; none: nothing."
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
    "outside": partial(
        choice,
        default="ring",
        enum_values=OUTSIDE,
        help="What a hierarchical all-reduce does across groups.",
    ),
    "timeline": partial(
        integer,
        default=1,
        lower_bound=0,
        help="Steps after the first to draw as timeline.svg; 0 draws none.",
    ),
    "profile": partial(
        switch,
        default=False,
        help="Let JAX trace the steps of --timeline, too: profile.json.gz has both.",
    ),
    "record": partial(
        text, default=None, help="File for the order in which messages came from ANY."
    ),
    "replay": partial(
        text, default=None, help="File with the order in which they shall come."
    ),
    "csv": partial(switch, default=False, help="Write metrics.csv as well."),
    "tensorboard": partial(
        switch, default=False, help="Write TensorBoard's event files as well."
    ),
    "watts": partial(
        number,
        default=10.0,
        lower_bound=0,
        upper_bound=MOST,
        help="Of a busy core, where no counter of energy can be read.",
    ),
    "pue": partial(
        number,
        default=1.58,
        lower_bound=1,
        upper_bound=MOST,
        help="Energy of the data centre by that of its machines.",
    ),
    "grid": partial(
        number,
        default=0.4327,
        lower_bound=0,
        upper_bound=MOST,
        help="kg CO2e of a kWh there.",
    ),
    "core_price": partial(
        number,
        default=None,
        lower_bound=0,
        upper_bound=MOST,
        help="Dollars of a core's hour [a table].",
    ),
    "gpu_price": partial(
        number,
        default=None,
        lower_bound=0,
        upper_bound=MOST,
        help="Dollars of a GPU's hour [a table].",
    ),
}


def chosen(values: FlagValues) -> dict[str, Any]:
    """Return every flag and its value, as config.json keeps them."""
    both = ("help", "flagfile", "undefok")  # absl's own
    return {k: v for k, v in values.flag_values_dict().items() if k not in both}
