import batch_size
import numpy as np
import pytest
from studies.shared_memory import batch_size_runs

from dml import sim
from dml.models.sparse import logistic_edges as logistic
from dml.wire.comm import Metered
from tests.experiments.run_folder import check_folder, read_rows
from tests.strategies.shared import small

SMALL = ["--examples=256", "--features=60", "--nonzeros=5", "--copies=16", "--mu=1e-3"]
KINDS = ["diverse", "repeated"]
SMALL += ["--batches=4,256", "--epochs=20", "--looks=8", "--workers=2"]


def plan(**chosen):
    values = batch_size.flags.parse(batch_size.FLAGS, ["batch_size.py", *SMALL])
    name = chosen.pop("data", "diverse")
    return batch_size_runs.plan_from_flags(name, values)._replace(**chosen)


def alone(program):
    """Call program(comm) with one worker."""

    return sim.run(lambda comm: program(Metered(comm)), 1)[0]


def gradients(data, table):
    """Return the gradients of all examples, one a row, by their definition."""
    inputs = batch_size_runs.matrix(data, len(table)).toarray()
    table = table.astype(np.float64)
    rows = []
    for x, y in zip(inputs, data.labels.astype(np.float64), strict=True):
        rows.append(-y * x / (1 + np.exp(y * (x @ table))) + data.mu * table)
    return np.array(rows)


def test_a_run_prints_steps_and_seconds_and_leaves_figures(tmp_path):
    summary = batch_size.main(["batch_size.py", f"--out={tmp_path}", *SMALL])
    rows = read_rows(tmp_path)
    assert [row["batch"] for row in rows] == [1, 4, 256] * 2
    for row in rows:
        assert row["steps"] == -(-row["examples"] // row["batch"])
        for p in (1, 2):
            assert row[f"seconds_{p}"] == row["steps"] * row[f"step_seconds_{p}"] > 0
    assert rows[0]["speedup"] == rows[0]["of_ideal"] == 1
    assert rows[4]["speedup"] == rows[3]["steps"] / rows[4]["steps"] > 2
    assert rows[5]["of_ideal"] < 0.5  # 16 examples: 256 of them are no better
    assert summary["repeated_bound"] < summary["diverse_bound"] / 2
    assert summary["diverse_4_steps"] == rows[1]["steps"]
    for name in ("steps.svg", "steps.png", "seconds.svg", "seconds.png"):
        assert (tmp_path / name).stat().st_size > 0
    check_folder(tmp_path, summary)


@pytest.mark.parametrize("data", KINDS)
def test_diversity_is_that_of_each_examples_gradient(data):
    problem = plan(data=data).problem
    width = len(problem.params)
    rng = np.random.default_rng(1)
    for table in (problem.params, rng.standard_normal(width).astype(np.float32)):
        grads_NxT = gradients(problem.kernel.data, table)
        wanted = len(grads_NxT) * (grads_NxT**2).sum()
        wanted /= (grads_NxT.sum(axis=0) ** 2).sum()
        found = batch_size_runs.diversity(problem.kernel.data, width)(table)
        assert found == pytest.approx(wanted)


def test_repeated_data_has_as_many_examples_each_there_so_often():
    size = (96, 40, 5)
    diverse, repeated = (batch_size_runs.generated(size, n, 0) for n in (1, 8))
    for batch, copies in ((diverse, 1), (repeated, 8)):
        both = np.column_stack([batch.inputs.toarray(), batch.targets])
        counts = np.unique(both, axis=0, return_counts=True)[1]
        assert counts.tolist() == [copies] * (96 // copies)


def test_copies_of_all_examples_leave_the_bound_as_it_is():
    batch = small.generate(64, 40, 5, 0)
    again = np.tile(np.arange(64), 8)
    more = batch._replace(inputs=batch.inputs[again], targets=batch.targets[again])
    start = np.zeros(40, np.float32)
    bounds = [
        batch_size_runs.diversity(logistic.documents(one, 1e-3), 40)(start)
        for one in (batch, more)
    ]
    assert bounds[1] == pytest.approx(bounds[0])
    same = np.zeros(9, int)
    one = batch._replace(inputs=batch.inputs[same], targets=batch.targets[same])
    bound = batch_size_runs.diversity(logistic.documents(one, 1e-3), 40)
    assert bound(start) == pytest.approx(1)


@pytest.mark.parametrize("batch, ends", [(256, [256, 256, 256]), (96, [96, 192, 256])])
def test_a_window_of_one_batch_is_a_step_down_the_sum_of_its_gradients(batch, ends):
    one = plan()
    data, rate = one.problem.kernel.data._replace(mu=0.0), 0.02
    free = one._replace(
        problem=one.problem._replace(kernel=one.problem.kernel._replace(data=data))
    )
    table = one.problem.params

    def four(comm):
        run = batch_size_runs.descent(free, batch, rate, comm)
        return [next(run)[:2] for _ in range(4)]

    examples = 0
    for (seen, found), end in zip(alone(four), [*ends, ends[0]], strict=True):
        first = 0 if end <= batch else end - (end - 1) % batch - 1
        examples += end - first
        assert seen == examples
        table = table - rate * gradients(data, table)[first:end].sum(axis=0)
        np.testing.assert_allclose(found, table, rtol=1e-4, atol=1e-5)  # order of sums


def test_the_search_climbs_to_the_best_rate_from_either_side(monkeypatch):
    cost = {2.0**k: 100 + 10 * abs(k + 3) for k in range(-8, 1)}
    monkeypatch.setattr(
        batch_size_runs,
        "examples_to_target",
        lambda plan, batch, rate, comm, limit: cost.get(rate, np.inf),
    )
    for start in (2.0**-7, 2.0**-3, 1.0, 4.0):  # at 4 it does not converge
        found = batch_size_runs.search_rate(plan(), 1, start, None)
        assert found == (2.0**-3, 100)
    monkeypatch.setattr(batch_size_runs, "examples_to_target", lambda *_: np.inf)
    assert batch_size_runs.search_rate(plan(), 1, 1.0, None).examples == np.inf
