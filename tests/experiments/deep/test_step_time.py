from types import SimpleNamespace

import jax
import numpy as np
import pytest
import step_time
from lab import compiling
from studies.step_time import report as step_time_report
from studies.step_time import strategies, torch_training
from studies.step_time.strategies import PRODUCT, PSUM, TASKS, Laps

from dml.types import BadInput
from tests.experiments.run_folder import check_folder, read_rows

TINY = ["--size=tiny", "--vocabulary=50", "--length=8", "--batch=4", "--rounds=2"]
TINY += ["--image=4"]
LAYERS, WIDTH, HEADS = 1, 16, 2


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make tiny networks tinier, and the yardstick, lest they take seconds."""
    for sizes in strategies.SIZES.values():
        monkeypatch.setitem(sizes, "tiny", (LAYERS, WIDTH, HEADS))
    monkeypatch.setitem(strategies.LARGE, "cpu", 64)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return run(*flags) -> summary and rows; no cache is kept."""
    monkeypatch.setattr(compiling, "enable_cache", lambda: None)

    def go(*argv):
        given = ["step_time.py", f"--out={tmp_path}", *TINY, *argv]
        (summary,) = step_time.main(given)
        return summary, {row["strategy"]: row for row in read_rows(tmp_path)}

    return go


def test_all_take_the_same_steps_by_turns_and_torch_takes_them_too(run, tmp_path):
    pytest.importorskip("torch")
    summary, rows = run("--model=cnn", "--peer=torch", "--bucket_mb=0")
    names = ["serial", "synchronous", "mesh", "torch"]
    assert list(rows) == names
    first = {row["first_loss"] for row in rows.values()}
    later = {row["last_loss"] for row in rows.values()}
    assert max(first) == pytest.approx(min(first), rel=3e-6)
    # three updates by AdamW, of gradients clipped at 1
    assert max(later) == pytest.approx(min(later), rel=1e-5)
    assert abs(max(later) - min(first)) > 1e-3
    assert rows["serial"]["wire_share"] is None
    assert 0 < rows["synchronous"]["wire_share"] < 1
    check_folder(tmp_path, summary, "step_time.svg", "step_time.png")
    assert summary["first_loss_gap"] < 1e-6
    assert summary["serial_images_per_second"] == pytest.approx(
        4 / summary["serial_ms"] * 1e3
    )


@pytest.mark.parametrize("model", ["gpt", "bert"])
def test_a_pytorch_reference_has_our_loss_and_gradient(model):
    torch = pytest.importorskip("torch")
    from studies.step_time.torch_networks import NETWORKS, load

    step_time.flags.parse(step_time.FLAGS, ["", *TINY, "--batch=1"])
    step_time.FLAGS.model = model
    task = TASKS[model](step_time.FLAGS)
    params = jax.device_get(task.model.init(jax.random.key(0)))
    rng = np.random.default_rng(1)  # biases are no zeros, scales no ones
    params = jax.tree.map(
        lambda leaf: leaf + 0.5 * rng.standard_normal(leaf.shape, np.float32), params
    )
    loss, grads = jax.jit(jax.value_and_grad(task.model.loss))(params, task.data)
    reference = NETWORKS[model](task.shape)
    load(reference, params)
    found = reference(*jax.tree.map(torch.from_numpy, task.data))
    found.backward()
    assert found.item() == pytest.approx(float(loss), rel=3e-6)
    # weights may lie transposed: their squares' sums are equal
    mine = sorted(float(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(grads))
    its = sorted(float((one.grad**2).sum()) for one in reference.parameters())
    np.testing.assert_allclose(its, mine, rtol=1e-4)


def test_a_different_pytorch_reference_ends_the_run():
    rows = [{"peer": False, "first_loss": 2.0}, {"peer": True, "first_loss": 2.001}]
    with pytest.raises(FloatingPointError, match="got 0.0005; check the PyTorch"):
        torch_training.first_loss_difference(rows, "float32")
    assert torch_training.first_loss_difference(rows, "bfloat16") == pytest.approx(5e-4)


def lap(ms, wire=None):
    phases = {"gradient": 0.08, **({} if wire is None else {"wire": wire / 1e3})}
    return Laps(np.array([ms, ms, ms]) / 1e3, phases, (1.0, 1.0), 1)


def test_shares_are_of_the_step_and_overlap_is_of_the_wire(monkeypatch):
    monkeypatch.setattr(step_time_report, "flops", lambda setup: 1e9)
    monkeypatch.setattr(step_time_report, "peak", lambda setup, laps: 40e9)
    monkeypatch.setattr(step_time_report, "unsharded_bytes", lambda setup: 1)
    setup = SimpleNamespace(
        values=SimpleNamespace(batch=16),
        comm=SimpleNamespace(size=2),
        task=SimpleNamespace(unit="images", units=1),
    )
    laps = {
        "synchronous": lap(100, 20),
        "synchronous 1 MB": lap(95, 3),
        "synchronous 2 MB": lap(105, 3),
        "mesh": lap(50),
        "torch": lap(200),
        PRODUCT: lap(1),
        PSUM: lap(10),
    }
    plain, cut, slower, mesh, peer = step_time_report.rows(setup, laps, {"torch"})
    assert plain["wire_share"] == pytest.approx(0.2)
    assert plain["overlap_share"] is None
    assert cut["overlap_share"] == pytest.approx(0.25)
    assert slower["overlap_share"] == 0
    assert mesh["wire_share"] == pytest.approx(0.2)
    assert (mesh["wire_ms"], mesh["gradient_ms"]) == pytest.approx((10, 70))
    assert (plain["torch_ratio"], mesh["torch_ratio"]) == pytest.approx((2, 4))
    assert plain["share_of_peak"] == pytest.approx(0.25)
    assert mesh["images_per_second"] == pytest.approx(320)


def test_without_torch_a_line_names_the_package_to_install(run, monkeypatch):
    monkeypatch.setattr(torch_training.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="expected torch .* the extra `peers`"):
        run("--peer=torch")
