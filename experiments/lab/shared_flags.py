"""The set of flags of an experiment, and the flags that experiments share, by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from dml import extend
from dml.runs.tracking import TRACKERS
from dml.types import BadInput
from dml.types.ranges import MAX_COUNT as MAX_COUNT
from dml.types.ranges import MAX_NUMBER, MAX_SIZE, SEEDS
from dml.wire.reducers import names

flags.disclaim_key_flags()  # --help lists a flag under the caller of its method

# groups of SHARED
VIRTUAL = ("simulate", "network", "events", "virtual_seconds")
RANKS = (*VIRTUAL, "straggle", "watchdog")
ALLREDUCES = ("check", "group", "outside")
TIMELINE = ("timeline", "profile")
ORDER = ("record", "replay")
MAX_FLAGFILE = 1 << 20  # bytes
MAX_TERM = 1e6  # largest term of energy and cost, so that sums are finite
TERMS = ("watts", "pue", "grid", "core_price", "gpu_price")  # terms of energy, cost
# flags of every command
WRITTEN = ("out", "overwrite", "wide", "csv", "tensorboard", "track", *TERMS)
OUTSIDE = ["star", "tree", "butterfly", "halving_doubling", "ring"]
# by name: the method of FlagValues that defines the flag, and its further arguments
SHARED: dict[str, tuple[Any, ...]] = {
    "out": ("text", None, "Run folder [runs/<experiment>/<UTC time>]."),
    "overwrite": ("switch", False, "Deletion of an earlier run in the run folder."),
    "seed": ("integer", 0, "Random seed.", 0, SEEDS - 1),
    "simulate": (
        "integer",
        0,
        "Number of virtual ranks; 0 runs on real ranks.",
        0,
        1 << 20,
    ),
    "network": (
        "text",
        "1e-6,1e-9,1e-10",
        "Network of virtual ranks: alpha,beta,gamma (seconds per message, byte sent, "
        "byte reduced), or hosts:16x8, torus:8x8x8, fat_tree, dragonfly, slim_fly:5, "
        "ring, graph:FILE, each also with @alpha,beta,gamma.",
    ),
    "events": (
        "text",
        "",
        "Failures of virtual ranks: die:RANK@T; die_host:HOST@T; "
        "slow:RANKS-RANKS*FACTOR@T..T; cut:RANKS-RANKS@T..T; cut_link:LINK@T..T; "
        "lose:RANKS>RANKS*SHARE@T..T; nat:RANKS@T..T.",
    ),
    "virtual_seconds": ("number", 1e9, "Virtual seconds after which a run ends.", 0),
    "straggle": ("text", "", "Delay distribution of an update; empty: no delays."),
    "watchdog": (
        "number",
        60.0,
        "Seconds in a call after which the ranks that wait are reported; 0: never.",
        0,
    ),
    "check": ("switch", False, "Comparison of buffers between ranks at every call."),
    "group": (
        "text",
        "0",
        "Group size of hierarchical, or sizes of several levels as 8x16, from the "
        "inside; 0 groups by host.",
    ),
    "outside": ("choice", "ring", OUTSIDE, "All-reduce across groups of hierarchical."),
    "timeline": (
        "integer",
        1,
        "Number of steps after the first in timeline.svg; 0: none.",
        0,
    ),
    "profile": (
        "switch",
        False,
        "JAX trace of the steps of --timeline; profile.json.gz contains both.",
    ),
    "record": ("text", None, "File for the order of messages received from ANY."),
    "replay": ("text", None, "File with the order of messages to receive from ANY."),
    "wide": ("switch", False, "All columns of tables wider than 80 characters."),
    "csv": ("switch", False, "Output of metrics.csv."),
    "tensorboard": ("switch", False, "Output of TensorBoard event files."),
    "track": (
        "choice",
        None,
        [*TRACKERS],
        "Tracker that also gets flags, rows and summary; offline by default.",
    ),
    "watts": (
        "number",
        10.0,
        "Power of a busy core in watts, used without energy counters.",
        0,
        MAX_TERM,
    ),
    "pue": (
        "number",
        1.58,
        "Power usage effectiveness of the data centre.",
        1,
        MAX_TERM,
    ),
    "grid": ("number", 0.4327, "Carbon intensity in kg CO2e per kWh.", 0, MAX_TERM),
    "core_price": (
        "number",
        None,
        "Price of a core in dollars per hour [from a table].",
        0,
        MAX_TERM,
    ),
    "gpu_price": (
        "number",
        None,
        "Price of a GPU in dollars per hour [from a table].",
        0,
        MAX_TERM,
    ),
}


class HelpLevel(flags.BooleanParser):
    """Parser of --help, whose value is True, False or "all"."""

    def parse(self, argument: str | int) -> Any:
        return argument if argument == "all" else super().parse(argument)


class Extensible(flags.ArgumentParser):
    """Parser of a name in a table, the name of an entry point, or FILE.py:NAME."""

    def __init__(self, table: Mapping[str, Any], group: str):
        self.table, self.group = table, group
        self.enum_values = [*table, "FILE.py:NAME"]

    def parse(self, argument: str) -> str:
        known = extend.is_known(argument, self.table, self.group)
        if not known and not self.is_built_in(argument):
            names = [*extend.names(self.table, self.group), "FILE.py:NAME"]
            raise ValueError(f"value should be one of <{'|'.join(names)}>")
        return argument

    def is_built_in(self, argument: str) -> bool:
        """Return whether a text is a built-in name with or without arguments."""
        return argument in self.table

    def check(self, argument: str) -> None:
        """Import an object of a user; raise BadInput if there is none."""
        if ":" in argument and not self.is_built_in(argument):
            extend.find(argument, self.table, self.group)

    def flag_type(self) -> str:
        return "name"


class Reduction(Extensible):
    """Parser of a reducer: a name of `reducers.names`, or that of a user."""

    def __init__(self) -> None:
        super().__init__(names.REDUCERS, extend.REDUCERS)

    def is_built_in(self, argument: str) -> bool:
        return names.is_name(argument)

    def parse(self, argument: str) -> str:
        if names.is_name(argument):
            names.parse(argument)
        code = names.own_code(argument)
        super().parse(code.name if code else argument)
        return argument

    def check(self, argument: str) -> None:
        code = names.own_code(argument)
        if code:
            extend.find(code.name, {}, extend.CODECS)
        else:
            super().check(argument)


class AttackName(Extensible):
    """Parser of an attack: empty, a name of `robust.attacks`, or that of a user."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(names.ATTACKS), extend.ATTACKS)

    def is_built_in(self, argument: str) -> bool:
        return not argument or argument.partition(":")[0] in names.ATTACKS


class FlagValues(flags.FlagValues):
    """The flags of an experiment: a method defines a flag, an attribute is its value.

    FLAGS = flags.define("seed")
    FLAGS.integer("steps", 300, "Number of updates.", 1)
    flags.parse(FLAGS, argv)
    FLAGS.steps
    """

    def help_flag(self) -> None:
        """Define --help, --help=all and -h."""
        flag = flags.BooleanFlag(
            "help", False, "Help: the flags most used, or --help=all.", short_name="h"
        )
        flag.parser = HelpLevel()
        flags.DEFINE_flag(flag, self)

    def integer(
        self,
        name: str,
        default: int | None,
        help: str,
        least: int | None = None,
        most: int | None = None,
    ) -> None:
        """Define a flag for a whole number from least to most, or to MAX_SIZE."""
        most = MAX_SIZE if most is None else most
        flags.DEFINE_integer(name, default, help, least, most, self)

    def number(
        self,
        name: str,
        default: float | None,
        help: str,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Define a flag for a number from least to most, or to MAX_NUMBER."""
        most = MAX_NUMBER if most is None else most
        flags.DEFINE_float(name, default, help, least, most, self)

    def text(self, name: str, default: str | None, help: str) -> None:
        """Define a flag for a string."""
        flags.DEFINE_string(name, default, help, self)

    def choice(
        self, name: str, default: str | None, choices: Sequence[str], help: str
    ) -> None:
        """Define a flag for one of choices."""
        flags.DEFINE_enum(name, default, choices, help, self)

    def extensible(
        self, name: str, default: str, table: Mapping[str, Any], group: str, help: str
    ) -> None:
        """Define a flag for a name in a table, an entry point, or FILE.py:NAME."""
        parser = Extensible(table, group)
        flags.DEFINE(parser, name, default, help, self, flags.ArgumentSerializer())

    def define_strategy(
        self, names: Sequence[str], help: str = "Training strategy."
    ) -> None:
        """Define --strategy, of these names or of a user."""
        table = dict.fromkeys(names)
        self.extensible("strategy", "synchronous", table, extend.STRATEGIES, help)

    def define_allreduce(self, of: str) -> None:
        """Define --allreduce, of ALLREDUCE or of a user."""
        from dml.wire.collectives import ALLREDUCE

        help = f"All-reduce of {of}."
        self.extensible("allreduce", "auto", ALLREDUCE, extend.ALLREDUCES, help)

    def define_consistency(self, default: str, of: str) -> None:
        """Define --consistency, of CONSISTENCIES or of a user."""
        from dml.wire.server.consistency import CONSISTENCIES

        table, group = CONSISTENCIES, extend.CONSISTENCIES
        self.extensible("consistency", default, table, group, f"Consistency of {of}.")

    def reducer(self) -> None:
        """Define --reduce, a reducer of `reducers.names` or of a user."""
        flags.DEFINE(
            Reduction(),
            "reduce",
            "exact",
            "Reducer, which computes the mean of gradients: NAME or NAME:ARGUMENT, "
            "then @TRANSPORT, +feedback for compressed gradients; or +nnm, +bucketing, "
            "+clipping, +momentum for robust rules. FILE.py:NAME@TRANSPORT is your own "
            "code.",
            self,
            flags.ArgumentSerializer(),
        )

    def adversaries(self) -> None:
        """Define --attack and --attackers, and --skew of the workers' examples."""
        flags.DEFINE(
            AttackName(),
            "attack",
            "",
            "Attack of Byzantine workers, NAME or NAME:ARGUMENT; empty: none.",
            self,
            flags.ArgumentSerializer(),
        )
        self.integer("attackers", 0, "Number of Byzantine workers, the last ones.", 0)
        self.text(
            "skew",
            "",
            "Skew of the workers' examples, similarity:GAMMA or dirichlet:ALPHA; "
            "empty: all workers draw from all examples.",
        )

    def switch(self, name: str, default: bool, help: str) -> None:
        """Define a flag that is on or off: --name and --noname."""
        flags.DEFINE_boolean(name, default, help, self)

    def read_flags_from_files(
        self, argv: Sequence[str], force_gnu: bool = True
    ) -> list[str]:
        """Replace --flagfile=FILE by the flags of the file."""
        for name, following in zip(argv, [*argv[1:], ""], strict=False):
            flag, equals, file = name.partition("=")
            if flag in ("-flagfile", "--flagfile"):
                check_flagfile(file if equals else following)
        return super().read_flags_from_files(argv, force_gnu)

    def __setitem__(self, name: str, flag: flags.Flag) -> None:
        if hasattr(FlagValues, name):
            raise ValueError(f"expected a flag name that is not a method, got --{name}")
        super().__setitem__(name, flag)


def check_flagfile(file: str) -> None:
    """Raise BadInput unless the file is a text of at most MAX_FLAGFILE bytes."""
    path = Path(file)
    try:
        readable = path.is_file() and path.stat().st_size <= MAX_FLAGFILE
        if readable:
            path.read_text()
    except (OSError, UnicodeDecodeError):
        readable = False
    if not readable:
        raise BadInput(
            f"expected a text file with a flag per line in --flagfile, got {file!r}; "
            "correct the path"
        )


def chosen(values: FlagValues) -> dict[str, Any]:
    """Return every flag and its value, as written to config.json."""
    internal = ("help", "h", "flagfile", "undefok")  # absl's own
    return {k: v for k, v in values.flag_values_dict().items() if k not in internal}


def widths(text: str) -> tuple[int, ...]:
    """Return the group sizes of --group, from the innermost level on."""
    words = text.split("x")
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise BadInput(
            f"expected group sizes separated by x, got --group={text}; pass one for "
            "each level, such as --group=8x16"
        )
    return tuple(map(int, words))
