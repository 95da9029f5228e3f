"""The set of flags of an experiment, and the flags that experiments share, by name."""

from collections.abc import Sequence
from typing import Any

from absl import flags

flags.disclaim_key_flags()  # --help lists a flag under the caller of its method

VIRTUAL = ("simulate", "network", "events", "virtual_seconds")
SEEDS = 1 << 63  # as many as all generators of random numbers take
MOST = 1e6  # of each term of energy and cost: beyond, sums are no numbers
TERMS = ("watts", "pue", "grid", "core_price", "gpu_price")  # of energy and cost
WRITTEN = ("out", "csv", "tensorboard", *TERMS)  # by every experiment's run
OUTSIDE = ["star", "tree", "butterfly", "halving_doubling", "ring"]
# by name: the method of FlagValues that defines the flag, and its further arguments
SHARED: dict[str, tuple[Any, ...]] = {
    "out": ("text", None, "Run folder [runs/<experiment>/<UTC time>]."),
    "seed": ("integer", 0, "Random seed.", 0, SEEDS - 1),
    "simulate": ("integer", 0, "Virtual ranks; 0 runs on real ones.", 0, 1 << 20),
    "network": (
        "text",
        "1e-6,1e-9,1e-10",
        "Of virtual ranks: alpha,beta,gamma (seconds a message, a byte sent, a "
        "byte reduced), or hosts:16x8, torus:8x8x8, fat_tree, dragonfly, slim_fly:5, "
        "ring, graph:FILE, each also with @alpha,beta,gamma.",
    ),
    "events": (
        "text",
        "",
        "Failures of virtual ranks: die:RANK@T; die_host:HOST@T; "
        "slow:RANKS-RANKS*FACTOR@T..T; cut:RANKS-RANKS@T..T; cut_link:LINK@T..T.",
    ),
    "virtual_seconds": ("number", 1e9, "Seconds after which a virtual run ends.", 0),
    "straggle": ("text", "", "Delay distribution of an update; empty: no delays."),
    "watchdog": ("number", 60.0, "Seconds to wait in a call; 0 is off.", 0),
    "check": ("switch", False, "Compare buffers between ranks at every call."),
    "group": ("integer", 0, "Ranks in a group; 0 groups by host.", 0),
    "outside": ("choice", "ring", OUTSIDE, "All-reduce across groups of hierarchical."),
    "timeline": (
        "integer",
        1,
        "Steps after the first to draw as timeline.svg; 0 draws none.",
        0,
    ),
    "profile": (
        "switch",
        False,
        "Trace the steps of --timeline with JAX as well: profile.json.gz has both.",
    ),
    "record": ("text", None, "File for the order of messages received from ANY."),
    "replay": ("text", None, "File with the order of messages to receive from ANY."),
    "csv": ("switch", False, "Write metrics.csv as well."),
    "tensorboard": ("switch", False, "Write TensorBoard's event files as well."),
    "watts": (
        "number",
        10.0,
        "Watts of a busy core, where no counter of energy can be read.",
        0,
        MOST,
    ),
    "pue": ("number", 1.58, "Energy of the data centre by that of machines.", 1, MOST),
    "grid": ("number", 0.4327, "kg CO2e of a kWh there.", 0, MOST),
    "core_price": ("number", None, "Dollars of a core's hour [a table].", 0, MOST),
    "gpu_price": ("number", None, "Dollars of a GPU's hour [a table].", 0, MOST),
}


class FlagValues(flags.FlagValues):
    """The flags of an experiment: a method defines a flag, an attribute is its value.

    FLAGS = flags.define("seed")
    FLAGS.integer("steps", 300, "Updates.", 1)
    flags.parse(FLAGS, argv)
    FLAGS.steps
    """

    def integer(
        self,
        name: str,
        default: int | None,
        help: str,
        least: int | None = None,
        most: int | None = None,
    ) -> None:
        """Define a flag for a whole number from least to most."""
        flags.DEFINE_integer(name, default, help, least, most, self)

    def number(
        self,
        name: str,
        default: float | None,
        help: str,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Define a flag for a number from least to most."""
        flags.DEFINE_float(name, default, help, least, most, self)

    def text(self, name: str, default: str | None, help: str) -> None:
        """Define a flag for a text."""
        flags.DEFINE_string(name, default, help, self)

    def choice(
        self, name: str, default: str, choices: Sequence[str], help: str
    ) -> None:
        """Define a flag for one of choices."""
        flags.DEFINE_enum(name, default, choices, help, self)

    def switch(self, name: str, default: bool, help: str) -> None:
        """Define a flag that is on or off: --name and --noname."""
        flags.DEFINE_boolean(name, default, help, self)

    def __setitem__(self, name: str, flag: flags.Flag) -> None:
        if hasattr(FlagValues, name):
            raise ValueError(f"expected another name than --{name}, which is a method")
        super().__setitem__(name, flag)


def chosen(values: FlagValues) -> dict[str, Any]:
    """Return every flag and its value, as config.json keeps them."""
    both = ("help", "flagfile", "undefok")  # absl's own
    return {k: v for k, v in values.flag_values_dict().items() if k not in both}
