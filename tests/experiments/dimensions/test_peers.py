"""Libraries of linear models reach the objectives of dml."""

import dimensions
import numpy as np
import pytest
from studies.dimensions import peers

from dml import sim
from dml.wire.comm import Metered
from tests.experiments.run_folder import read_rows

SIZES = 300, 200, 20


def only(*names):
    return {key: peers.LIBRARIES[key] for key in peers.LIBRARIES if key[1] in names}


def test_each_library_has_the_objective_of_dml_on_any_ranks(monkeypatch):
    monkeypatch.setattr(peers, "LIBRARIES", only("scikit-learn"))
    own, other = {}, {}
    for size in (1, 3):
        found = sim.run(lambda comm: [*peers.rows(Metered(comm), *SIZES, 0)], size)
        assert not any(found[1:])
        assert [row["workers"] for row in found[0]] == [size, 1, size, 1]
        for row in found[0]:
            assert 0 <= row["gap"] < 1e-6
            kept = own if row["peer"].startswith("dml") else other
            kept.setdefault(row["problem"], []).append(row["objective"])
    assert own.keys() == other.keys() == {peers.L1, peers.L2}
    for kind, values in own.items():
        np.testing.assert_allclose(values, other[kind], rtol=1e-6)


@pytest.mark.parametrize("seed, first", [(0, -1), (1, 1)])
@pytest.mark.parametrize("kind, name", peers.LIBRARIES)
def test_an_installed_library_has_the_objective_of_dml(
    kind, name, seed, first, monkeypatch
):
    """The sign of liblinear's weights is that of the first row's class."""
    pytest.importorskip(peers.LIBRARIES[kind, name][0])
    assert peers.data(*SIZES, seed).classes[0] == first
    monkeypatch.setattr(peers, "LIBRARIES", only(name))
    (rows,) = sim.run(lambda comm: [*peers.rows(Metered(comm), *SIZES, seed)], 1)
    assert max(row["gap"] for row in rows if row["problem"] == kind) < 1e-6


def test_the_objective_is_that_of_its_formula():
    given = peers.data(*SIZES, 0)
    w = np.linspace(-1, 1, SIZES[1])
    x = given.x.toarray()
    losses = np.log1p(np.exp(-given.classes * (x @ w)))
    want = losses.mean() + (w**2).sum() / SIZES[0] / 2
    assert np.isclose(given.objective(peers.L2, w), want)
    want = ((given.numbers - x @ w) ** 2).mean() / 2 + given.l1 * np.abs(w).sum()
    assert np.isclose(given.objective(peers.L1, w), want)
    zero = np.zeros(SIZES[1])  # α is a tenth of the largest slope at 0
    assert np.isclose(np.abs(x.T @ given.numbers).max() / SIZES[0], 10 * given.l1)
    assert given.objective(peers.L2, zero) == np.log(2)


def test_the_command_lists_what_is_installed(tmp_path, monkeypatch, capsys):
    none = {(peers.L2, "none"): ("no_such_module", peers.liblinear)}
    monkeypatch.setattr(peers, "LIBRARIES", none)
    argv = ["--peers", "--examples=300", "--features=200", "--nonzeros=20"]
    argv += ["--p=1", "--groups=1", f"--out={tmp_path}"]
    dimensions.main(["dimensions.py", *argv])
    assert {row["peer"] for row in read_rows(tmp_path)} == {
        *("dml L-BFGS", "dml ProxCoCoA+"),
    }
    assert "within 0.0e+00 of the least ones" in capsys.readouterr().out
