"""Virtual seconds to an AUC with stragglers: times, documents and figures."""

import gradient_coding
import numpy as np
import pytest
from studies.gradient_coding.runs import Task, auc, auc_problem, minibatches
from studies.gradient_coding.schemes import (
    CODES,
    FIXED,
    LOAD,
    loaded,
    make_scheme,
    order_statistics,
    predicted,
)

from dml.sim.delays import delay_distribution, seconds
from tests.experiments.run_folder import check_folder, read_rows

SMALL = ["--data=generated", "--workers=4,6", "--updates=6", "--lr=20"]
TAILS = ["fixed", "load"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder, the summary and the rows of a small run."""
    out = tmp_path_factory.mktemp("run")
    summary = gradient_coding.main(["gradient_coding.py", f"--out={out}", *SMALL])
    return out, summary, read_rows(out)


def test_updates_take_order_statistics_and_codes_compute_the_same_sums(run):
    _, _, rows = run
    assert len(rows) == 2 * 2 * 5
    assert max(row["virtual_error"] for row in rows) < 1e-12
    for n in (4, 6):
        curves = {
            row["scheme"]: row["curve_auc"] for row in rows if row["workers"] == n
        }
        for name in ("repetition", "cyclic"):
            assert curves[name] == pytest.approx(curves["waiting"], abs=1e-5)
        assert curves["ignoring"] != pytest.approx(curves["waiting"], abs=1e-5)
        assert curves["backup"] != pytest.approx(curves["ignoring"], abs=1e-5)


def test_the_first_time_at_the_least_auc_is_printed(run):
    out, summary, rows = run
    for tail in TAILS:
        some = [row for row in rows if (row["tail"], row["workers"]) == (tail, 6)]
        target = min(row["auc"] for row in some)
        for row in some:
            reached = np.array(row["curve_auc"]) >= target
            first = row["curve_seconds"][int(np.argmax(reached))]
            assert row["seconds_to_auc"] == first
            assert summary[f"{tail}_6_{row['scheme']}_seconds_to_auc"] == first
    names = [f"{name}.svg" for name in ("auc_fixed", "auc_load", "seconds")]
    check_folder(out, summary, *names)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("law", ["shifted_exponential:1,0.5", "lognormal:1,0.8"])
@pytest.mark.parametrize("name", CODES)
def test_predicted_seconds_are_means_of_order_statistics(name, law, tail):
    delay, scheme = delay_distribution(law), make_scheme(name, 6, 2)
    drawn_TxP = seconds(delay, 1, 8000, 6)
    taken_T = order_statistics(scheme, loaded(delay, tail, scheme.load, drawn_TxP))
    error = taken_T.std() / np.sqrt(len(taken_T))
    assert abs(taken_T.mean() - predicted(scheme, delay, tail)) < 4 * error


def test_repetition_takes_less_than_a_code_that_waits_for_any_workers():
    """(s+1) c + H_(n/(s+1))/mu, not (s+1) (c + (H_n - H_s)/mu)."""
    delay = delay_distribution("shifted_exponential:1,0.5")
    repetition = predicted(make_scheme("repetition", 10, 1), delay, LOAD)
    assert repetition == pytest.approx(2 + 2 * sum(1 / k for k in range(1, 6)))
    any_workers = 2 * (1 + 2 * sum(1 / k for k in range(2, 11)))
    cyclic = predicted(make_scheme("cyclic", 10, 1), delay, LOAD)
    assert cyclic == pytest.approx(any_workers) and cyclic > repetition
    assert predicted(make_scheme("cyclic", 10, 1), delay, FIXED) < any_workers


def test_a_fixed_tail_does_not_grow_with_the_load():
    delay, drawn = delay_distribution("shifted_exponential:1,0.5"), np.array([1, 5.0])
    assert loaded(delay, FIXED, 3, drawn).tolist() == [3, 7]
    assert loaded(delay, LOAD, 3, drawn).tolist() == [3, 15]


def test_workers_of_different_speeds_have_no_prediction():
    delay = delay_distribution("constant:1*1,0.2")
    assert predicted(make_scheme("waiting", 4, 1), delay, LOAD) is None


def test_the_area_under_the_curve_is_the_share_of_ordered_pairs():
    draws = np.random.default_rng(0)
    scores, labels = draws.integers(0, 9, 60), draws.choice([-1, 1], 60)
    pairs = scores[labels > 0][:, None] - scores[labels < 0][None]
    expected = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    assert auc(scores, labels) == pytest.approx(expected)


def test_documents_of_a_worker_are_fixed_unless_minibatches_are_drawn():
    task = Task(auc_problem("generated"), 0, "sgd", 1.0, 3, 0)
    fixed = list(minibatches(task, 1.0))
    assert len(fixed) == 3 and np.array_equal(fixed[0], fixed[2])
    assert sorted(fixed[0]) == list(range(600))
    backup = list(minibatches(task, 4 / 3))
    assert [len(batch) for batch in backup] == [800] * 3
    drawn = list(minibatches(task._replace(batch=60), 1.0))
    assert [len(batch) for batch in drawn] == [60] * 3
    assert not set(drawn[0]) & set(drawn[1])
