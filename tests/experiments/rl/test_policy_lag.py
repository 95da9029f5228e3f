"""policy_lag.py: the lag of every rollout is exactly the imposed one."""

import numpy as np
import policy_lag
import pytest
from studies.policy_lag import runs
from studies.rl.settings import ROLLOUTS

from dml.models.policies.actor import Actor
from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--updates=6", "--points=2", "--episodes=2", "--processes=1", "--seeds=2"]


def run(out, *argv):
    summary = policy_lag.main(["policy_lag.py", f"--out={out}", *SMALL, *argv])
    return summary, read_rows(out)


def test_every_correction_and_lag_is_trained(tmp_path, undrawn, capsys):
    names = "vtrace", "none"  # each is compiled
    chosen = f"--corrections={','.join(names)}"
    summary, rows = run(tmp_path, "--lags=0,2", "--environment=catch", chosen)
    check_folder(tmp_path, summary)
    assert [(row["correction"], row["lag"]) for row in rows] == [
        (name, lag) for name in names for lag in (0, 2)
    ]
    for row in rows:
        assert row["lag_max"] == row["lag"] and row["seeds"] == 2
        curves = np.array(row["curves"])
        assert curves.shape == (2, 2)
        assert row["mean_return"] == pytest.approx(curves.mean())
        spread = abs(curves[0].mean() - curves[1].mean()) / 2
        assert row["mean_return_error"] == pytest.approx(spread)
    assert summary["none_2_mean_return"] == rows[-1]["mean_return"]
    assert "not testable" in capsys.readouterr().out


def test_a_rollout_is_played_with_the_params_of_its_version(monkeypatch):
    """Record what each rollout is played with: its lag, and the bits of the params."""
    played = []
    rollout = Actor.rollout

    def recorded(self, params, version, out):
        bits = b"".join(np.asarray(leaf).tobytes() for leaf in leaves(params))
        played.append((version, bits))
        rollout(self, params, version, out)

    def leaves(params):
        return [layer[name] for layer in params.values() for name in layer]

    monkeypatch.setattr(Actor, "rollout", recorded)
    catch = ROLLOUTS["catch"]  # compiled for the test above
    sizes = catch.copies, catch.length, 6, 1, catch.optimizer, catch.lr, 2
    task = runs.Task("catch", *sizes, catch.widths, catch.loss)
    runs.train(task, runs.Cell("none", 2, 0))
    assert [version for version, _ in played] == [0, 0, 0, 1, 2, 3]
    assert played[0] == played[1] == played[2]
    assert len({bits for _, bits in played}) == 4


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--lags=1.5", "whole numbers"),
        ("--lags=-1", "numbers from 0"),
        ("--corrections=retrace", "vtrace"),
    ],
)
def test_bad_input_is_one_line(flag, words, tmp_path):
    with pytest.raises(policy_lag.flags.BadInput, match=words) as error:
        run(tmp_path, flag)
    assert "\n" not in str(error.value)
