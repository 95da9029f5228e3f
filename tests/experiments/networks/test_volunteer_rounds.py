"""Rounds of volunteers and all-reduces, measured on virtual ranks."""

from studies.volunteers import real

from dml import sim


def test_figures_of_rounds_are_equal_on_all_ranks_and_follow_the_network():
    network = sim.Uniform(1e-5, 1e-9, 0)
    figures = sim.run(lambda comm: real.measure(comm, 0.8, 4, 0), 4, network)
    assert all(one == figures[0] for one in figures)
    first = figures[0]
    assert first["complete"] == 1 and 0 < first["error"] < 1e-6
    least = 2 * 0.75 * 0.8e6 * 1e-9 * 1e3  # ms of the words that a rank receives
    assert least < first["halving_doubling_p50_ms"] < 1.7 * least
    assert least < first["round_p50_ms"] - first["search_p50_ms"] < 2 * least
    for name in ("search", "round", "settled", "ring"):
        assert 0 < first[f"{name}_p50_ms"] <= first[f"{name}_p99_ms"]
