import re
import signal
import sys

import numpy as np
import pytest
from lab import flags

from dml.types import BadInput
from tests import commands
from tests.commands import PYTHON

VALUES = flags.define("seed", "network")
VALUES.choice("color", "red", ["red", "blue"], "A color.")


def test_each_parse_starts_from_the_defaults():
    assert flags.parse(VALUES, ["x", "--seed=5"]).seed == 5
    assert flags.parse(VALUES, ["x", "--color=blue"]).seed == 0
    found = flags.chosen(VALUES)
    own = {name: found.pop(name) for name in ("seed", "network", "color")}
    assert own == {"seed": 0, "network": "1e-6,1e-9,1e-10", "color": "blue"}
    assert sorted(found) == sorted(flags.WRITTEN)  # of what every run writes


def test_a_flag_of_each_kind_is_read_and_listed_under_its_module():
    values = flags.define()
    values.integer("whole", 1, "Count.", 1, 9)
    values.number("part", 0.5, "Share.", most=1)
    values.text("word", None, "Name.")
    values.switch("bright", False, "Whether it is.")
    found = flags.parse(values, ["x", "--whole=9", "--part=1", "--word=a", "--bright"])
    assert (found.whole, found.part, found.word, found.bright) == (9, 1.0, "a", True)
    for flag, range_ in (("--whole=10", r"\[1, 9\]"), ("--part=2", "up to 1|<= 1")):
        with pytest.raises(BadInput, match=range_):
            flags.parse(values, ["x", flag])
    assert {flag.name for flag in values.flags_by_module_dict()[__name__]} == {
        *("whole", "part", "word", "bright")
    }


@pytest.mark.parametrize("value", [10**6 + 1, 2**63, 10**30])
def test_numbers_have_an_upper_bound_by_default(value):
    values = flags.define()
    values.integer("size", 1, "Size.", 1)
    values.number("rate", 1.0, "Rate.", 0)
    assert flags.parse(values, ["x", "--size=1000000", "--rate=1e38"]).size == 10**6
    with pytest.raises(BadInput, match=f"--size={value}: .* range"):
        flags.parse(values, ["x", f"--size={value}"])
    with pytest.raises(BadInput, match="--rate=1e308: .* range"):
        flags.parse(values, ["x", "--rate=1e308"])


def test_a_flagfile_is_a_short_text(tmp_path):
    (tmp_path / "good").write_text("--seed=3\n--color=blue\n")
    for argv in (
        [f"--flagfile={tmp_path / 'good'}"],
        ["--flagfile", tmp_path / "good"],
    ):
        found = flags.parse(VALUES, ["x", *map(str, argv)])
        assert (found.seed, found.color) == (3, "blue")
    (tmp_path / "bytes").write_bytes(b"--seed=\xd0\x00")
    (tmp_path / "long").write_text("--seed=3\n" * 200_000)
    for file in (tmp_path / "bytes", tmp_path / "long", "/dev/zero", tmp_path, "none"):
        with pytest.raises(BadInput, match=f"--flagfile, got '{file}'"):
            flags.parse(VALUES, ["x", f"--flagfile={file}"])


def test_a_flag_cannot_have_the_name_of_a_method():
    for name in ("integer", "choice"):
        with pytest.raises(ValueError, match=f"not a method, got --{name}"):
            flags.define().text(name, "", "Text.")


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--seed=x", "flag --seed=x: invalid"),
        ("--seed=-1", "flag --seed=-1: -1 is not an integer in the range [0"),
        ("--sed=1", "Did you mean: seed"),
        ("--color=green", "one of <red|blue>"),
        ("seed=1", "expected --flag=value, got 'seed=1'"),
    ],
)
def test_a_bad_flag_is_bad_input_that_points_to_help(flag, message):
    with pytest.raises(BadInput) as caught:
        flags.parse(VALUES, ["x", flag])
    assert message in str(caught.value)
    assert "--help lists" in str(caught.value)


LISTS = flags.define()
LISTS.text("several", "1,2", "Numbers.")


def test_lists_of_numbers_are_read_within_their_bounds():
    flags.parse(LISTS, ["x", "--several=4,2,4"])
    assert flags.integers(LISTS, "several") == [4, 2, 4]
    assert flags.numbers(LISTS, "several", 4) == [4.0, 2.0, 4.0]
    with pytest.raises(BadInput, match="numbers from 0 to 3 in --several, got '4,2,4'"):
        flags.numbers(LISTS, "several", 3)
    flags.parse(LISTS, ["x", "--several="])
    assert flags.integers(LISTS, "several", empty=True) == []
    for read in (flags.integers, flags.numbers):
        for text in ("", "1,x", "-1", "1,,2", "inf"):
            flags.parse(LISTS, ["x", f"--several={text}"])
            with pytest.raises(BadInput, match="in --several"):
                read(LISTS, "several")


WORLD = flags.define(*flags.VIRTUAL)


def on(argv, program):
    flags.parse(WORLD, ["x", *argv])
    return flags.ranks(program, WORLD)


def test_a_virtual_world_has_the_values_of_its_flags():
    def program(comm):
        comm.platform.compute(1)
        return comm.platform.network.rates[:3], comm.bytes_sent

    rates = (1, 2e-3, 0)
    assert on(["--simulate=2", "--network=1,2e-3,0"], program) == [(rates, 0)] * 2
    torus = ["--simulate=4", "--network=torus:2x2@1,2e-3,0", "--events=die:3@0.5"]
    assert on(torus, program) == [*[(rates, 0)] * 3, None]
    with pytest.raises(BadInput, match="expected 1 to 4 ranks|expected at most 4"):
        on(["--simulate=5", "--network=torus:2x2"], program)


def test_several_processes_do_not_simulate_the_same_ranks(monkeypatch):
    values = flags.define("simulate")
    monkeypatch.setenv("PMI_SIZE", "4")
    with pytest.raises(BadInput, match="--simulate=3, got 4 of mpirun"):
        flags.parse(values, ["x", "--simulate=3"])
    assert not flags.parse(values, ["x"]).simulate


def test_trouble_is_for_virtual_ranks():
    with pytest.raises(BadInput, match="expected --simulate with --events=die:0@1"):
        on(["--events=die:0@1"], print)


def test_a_virtual_run_that_does_not_end_well_is_one_line():
    def waits(comm):
        comm.Recv(np.zeros(1), 0, 7)

    def never_ends(comm):
        while True:
            comm.platform.compute(1)

    with pytest.raises(BadInput, match="deadlock: 9 of 9.*rank 1 at 0.0") as caught:
        on(["--simulate=9"], waits)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="expected a program that ends"):
        on(["--simulate=2", "--virtual_seconds=10"], never_ends)


COMMAND = '''
"""What this is."""
import sys
sys.path[:0] = {path}
from lab import flags
from dml.types import BadInput

VALUES = flags.define("seed")

def main(argv):
    if flags.parse(VALUES, argv).seed == 13:
        raise BadInput("expected luck,\\ngot 13; pass another")
    if VALUES.seed == 14:
        raise KeyError("a bug")
    if VALUES.seed == 15:
        open("no/such/file")
    if VALUES.seed == 16:
        raise flags.Stopped("stopped after epoch 2; go on")
    if VALUES.seed == 17:
        print("said before", end="")
        raise KeyboardInterrupt
    if VALUES.seed == 18:
        import numpy
        numpy.ones((10**6, 10**9))

flags.run(main)
'''


def command(tmp_path, *argv):
    (tmp_path / "x.py").write_text(COMMAND.format(path=sys.path).strip())
    return commands.command(PYTHON, tmp_path / "x.py", *argv)


@pytest.mark.parametrize(
    "flag, out, error, code",
    [
        ("--seed=13", "", "expected luck, got 13; pass another", 2),
        ("--sed=13", "", "Unknown command line flag 'sed'.*", 2),
        ("--seed=15", "", ".*No such file or directory: 'no/such/file'.*", 2),
        ("--seed=16", "", "stopped after epoch 2; go on", 130),
        ("--seed=17", "x.py: What this is; .*\nsaid before", "stopped", 130),
        ("--seed=18", "", "expected enough memory, got: Unable to alloc.*", 2),
    ],
)
def test_a_command_that_is_stopped_prints_one_line(tmp_path, flag, out, error, code):
    done = command(tmp_path, flag)
    assert re.fullmatch(f"x.py: {error}\n", done.stderr)
    assert re.fullmatch(out, done.stdout) and done.returncode == code


def test_a_bug_is_a_traceback_and_help_is_the_docstring_and_the_flags(tmp_path):
    done = command(tmp_path, "--seed=14")
    assert "Traceback" in done.stderr and done.returncode == 1
    done = command(tmp_path, "--help")
    assert done.stdout.startswith("What this is") and "--seed" in done.stdout
    assert done.returncode == command(tmp_path).returncode == 0


def test_a_signal_during_imports_ends_a_command_without_a_message(tmp_path):
    early = "from lab import flags\nraise KeyboardInterrupt\n"
    loads = COMMAND.replace("from lab import flags\n", early)
    (tmp_path / "x.py").write_text(loads.format(path=sys.path).strip())
    done = commands.command(PYTHON, tmp_path / "x.py")
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == -signal.SIGINT


def test_positive_numbers_are_whole():
    assert flags.positive("12", "ranks") == 12
    for bad in ("0", "-1", "1.5", "", "x"):
        with pytest.raises(BadInput, match=f"in --ranks, got '{bad}'"):
            flags.positive(bad, "ranks")
