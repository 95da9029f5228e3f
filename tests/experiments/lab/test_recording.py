"""--record and --replay, as every experiment has them."""

import sys
from functools import partial

import numpy as np
import pytest
from lab import flags, recording

from dml.types import BadInput
from tests.wire.server.serving import serve

FLAGS = flags.define("record", "replay", "seed", "timeline", "straggle", *flags.VIRTUAL)
FLAGS.number("pace", 1e-6, "Seconds that a step takes.")


def main(*argv):
    """Serve the other ranks; return what each knows."""
    flags.parse(FLAGS, ["x", *argv])

    def program(comm):
        rng = np.random.default_rng(
            [comm.rank, round(1 / comm.platform.network.rates.alpha)]
        )
        return serve(comm, lambda: FLAGS.pace * rng.uniform(0.1, 9))

    return flags.ranks(program, FLAGS)


FIRST = ("--simulate=4", "--network=1e-6,1e-9,1e-10")
OTHER = ("--simulate=4", "--network=torus:2x2@3e-6,1e-8,1e-10", "--timeline=0")


def test_a_run_is_repeated_on_another_network_by_its_file(tmp_path):
    found = main(*FIRST, f"--record={tmp_path / 'run'}")
    assert found == main(*FIRST)
    assert main(*OTHER) != found
    for more in ([], ["--events=slow:0-1*50@0..1"], ["--straggle=constant:1"]):
        assert main(*OTHER, *more, f"--replay={tmp_path / 'run'}") == found


@pytest.mark.parametrize(
    "argv, message",
    [
        ([*FIRST, "--seed=1"], "expected --seed=0 as recorded in .*, got --seed=1"),
        ([*FIRST, "--pace=1"], "expected --pace=1e-06 as recorded .*, got --pace=1.0"),
        (["--simulate=3"], "expected ranks=4 as recorded in .*, got ranks=3"),
    ],
)
def test_a_replay_with_other_flags_names_the_first(tmp_path, argv, message):
    main(*FIRST, f"--record={tmp_path / 'run'}")
    with pytest.raises(BadInput, match=message):
        main(*argv, f"--replay={tmp_path / 'run'}")


def test_files_that_cannot_be_are_refused_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("dml.sim.run", pytest.fail)
    both = [f"--record={tmp_path / 'run'}", f"--replay={tmp_path / 'run'}"]
    with pytest.raises(BadInput, match="expected --record or --replay, got both"):
        main(*FIRST, *both)
    with pytest.raises(BadInput, match="expected a record to read, got"):
        main(*FIRST, both[1])
    with pytest.raises(BadInput, match="expected no deaths of ranks .*die:1@0.5"):
        main(*FIRST, both[0], "--events=die:1@0.5")
    for path in (tmp_path, tmp_path / "no" / "run"):
        with pytest.raises(BadInput, match="expected a file in a writable folder"):
            main(*FIRST, f"--record={path}")


def test_another_experiment_is_refused(tmp_path):
    def other(comm):
        return comm.rank

    main(*FIRST, f"--record={tmp_path / 'run'}")
    flags.parse(FLAGS, ["x", *FIRST, f"--replay={tmp_path / 'run'}"])
    other.__module__ = "some.other"
    message = "experiment=test_recording as .*, got experiment=other"
    for program in (other, partial(other)):
        with pytest.raises(BadInput, match=message):
            flags.ranks(program, FLAGS)


def test_a_command_is_the_experiment_that_it_is_when_imported(monkeypatch):
    def program(comm):
        return comm.rank

    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "/some/where/linear.py", raising=False)
    program.__module__ = "__main__"
    assert recording.experiment(program) == "linear"
    program.__module__ = "linear"
    assert recording.experiment(program) == "linear"
