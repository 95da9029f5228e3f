"""compressed.py: rows, figures, problems and bad input."""

from pathlib import Path

import compressed
import jax
import numpy as np
import pytest
from studies.compression import problems

from dml.types import BadInput
from dml.wire.reducers.codecs.signs import sign
from tests.experiments.run_folder import read_rows

pytestmark = pytest.mark.usefixtures("quick")
# equal parts of a minibatch: a gradient of one shape
SMALL = ["--steps=8", "--repeats=1", "--ranks=3", "--batch=63", "--lr=0.05"]
PARAMETERS = 26_122
TEXT = str(Path(__file__).parents[3] / "LICENSE")  # it does not change


def run(tmp_path, *argv):
    summary = compressed.main(["compressed.py", f"--out={tmp_path}", *SMALL, *argv])
    return summary, {row["reducer"]: row for row in read_rows(tmp_path)}


def test_rows_have_bytes_losses_and_the_bandwidth_below_which_a_code_pays(tmp_path):
    summary, rows = run(tmp_path, "--reducers=sign@gather+feedback,order_free,natural")
    exact = rows["exact"]
    assert list(rows) == ["exact", "sign@gather+feedback", "order_free", "natural"]
    scalar = 4  # the loss of every update, by a ring of three ranks
    assert exact["bytes_per_update"] == pytest.approx(
        4 * PARAMETERS * 4 / 3, abs=3 * scalar
    )
    signs = rows["sign@gather+feedback"]
    codes = 2 * sign().nbytes(PARAMETERS)
    assert signs["bytes_per_update"] == pytest.approx(codes, abs=3 * scalar)
    assert signs["ratio"] == pytest.approx(21.3, abs=0.3)
    assert signs["last_ratio"] == pytest.approx(signs["ratio"])
    epoch = 1e-6 * signs["bytes_per_update"] * 1437 / 63
    assert signs["megabytes_per_epoch"] == pytest.approx(epoch)
    assert exact["loss"] == pytest.approx(rows["order_free"]["loss"], rel=1e-4)
    assert rows["order_free"]["pays"] == "never"  # as many bytes, and exponents
    if seconds := signs["codec_seconds"]:  # may be measured as 0
        saved = exact["bytes_per_update"] - signs["bytes_per_update"]
        assert signs["break_even_gbps"] == pytest.approx(8e-9 * saved / seconds)
    assert summary["natural_ratio"] == rows["natural"]["ratio"]
    for name in ("updates", "bytes", "seconds"):
        assert (tmp_path / f"{name}.svg").exists()


def test_seconds_of_an_update_are_those_of_the_gradient_the_codec_and_the_wire(
    tmp_path,
):
    _, slow = run(tmp_path / "slow", "--reducers=sign", "--gbps=1", "--latency_us=0")
    _, fast = run(tmp_path / "fast", "--reducers=sign", "--gbps=2", "--latency_us=0")
    row = slow["exact"]
    parts = ("gradient_seconds", "codec_seconds", "wire_seconds")
    assert row["step_seconds"] == pytest.approx(sum(row[part] for part in parts))
    adding = 4 * PARAMETERS * 2 / 3 * 1e-10  # per byte that a ring adds
    wire = [rows["exact"]["wire_seconds"] - adding for rows in (slow, fast)]
    assert wire[0] == pytest.approx(row["bytes_per_update"] * 8e-9, rel=1e-3)
    assert wire[0] == pytest.approx(2 * wire[1], rel=1e-3)


def test_random_k_and_top_k_send_as_many_bytes_as_a_reducer(tmp_path):
    _, rows = run(tmp_path, "--equal_bytes=power_sgd:2+feedback", "--steps=3")
    codes = [name.partition(":")[0] for name in rows]
    assert codes == ["exact", "power_sgd", "random_k", "top_k"]
    sent = [row["bytes_per_update"] for row in rows.values()][1:]
    assert sent == pytest.approx([sent[0]] * 3, rel=0.005)


def test_several_seeds_are_several_trainings(tmp_path):
    _, rows = run(tmp_path, "--seeds=2", "--reducers=natural")
    for row in rows.values():
        assert len(set(row["losses"])) == len(set(row["accuracies"])) == 2
        assert row["loss"] == pytest.approx(np.mean(row["losses"]))


# batch 2: a rank has one example, whose signs are those of the counterexample
@pytest.mark.parametrize("number, batch", [(1, 4), (2, 4), (3, 2)])
def test_signs_diverge_on_counterexamples_and_converge_with_feedback(
    number, batch, tmp_path
):
    name = f"--problem=counterexample_{number}"
    argv = ["compressed.py", name, "--reducers=sign,sign+feedback", "--ranks=2"]
    argv += [f"--batch={batch}", "--steps=400", "--repeats=1", f"--out={tmp_path}"]
    compressed.main(argv)
    rows = {row["reducer"]: row for row in read_rows(tmp_path)}
    shares = {
        name: row["held_out_loss"] / row["first_loss"] for name, row in rows.items()
    }
    assert shares["exact"] < 0.01 and shares["sign+feedback"] < 0.02
    assert shares["sign"] > 0.8
    if number > 1:  # x + y never changes, up to rounding
        assert rows["sign"]["held_out_loss"] == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("name", ("gpt", "glove", "cnn"))
def test_other_problems_learn(name, tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "CORPUS", TEXT)
    monkeypatch.setattr(problems, "VOCABULARY", 300)
    monkeypatch.setattr(problems, "SIZES", (8, 1, 32, 2))
    monkeypatch.setattr(problems, "find", problems.find.__wrapped__)
    argv = [f"--problem={name}", "--reducers=natural@scatter", "--batch=24", "--lr=0"]
    _, rows = run(tmp_path, *argv, "--steps=40", "--ranks=2")
    for row in rows.values():
        assert row["loss"] < 0.97 * row["first_loss"]
    assert rows["natural@scatter"]["ratio"] == pytest.approx(32 / 9, rel=0.01)


def test_the_gradient_of_glove_is_that_of_its_table(monkeypatch):
    monkeypatch.setattr(problems, "CORPUS", TEXT)
    monkeypatch.setattr(problems, "VOCABULARY", 300)
    task = problems.glove()
    loss, grads = task.gradient(task.params, task.take(np.arange(5)))
    batch = task.take(np.arange(5))
    touched = np.unique(np.concatenate([batch.words, batch.contexts]))
    rows = np.flatnonzero(np.abs(np.asarray(grads["vectors"])).sum(axis=1))
    assert rows.tolist() == touched.tolist()
    assert loss > 0 and len(jax.tree.leaves(grads)) == 2


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--reducers=top_k:7", r"expected a fraction in \(0, 1\]"),
        ("--reducers=qsgd:4+feedback", "expected a biased code with feedback"),
        ("--reducers=power_sgd:900", "expected a matrix of more than"),
        ("--problem=documents", "expected a problem with a pytree of parameters"),
        ("--optimizer=lamb --lr=0", "expected a learning rate of lamb"),
    ],
)
def test_bad_input_is_refused_before_any_training(tmp_path, flag, message):
    with pytest.raises(BadInput, match=message):
        run(tmp_path / "out", *flag.split())
    assert not (tmp_path / "out").exists()
