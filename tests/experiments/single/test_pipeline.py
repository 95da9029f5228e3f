"""The single file of pipelines has bits, order and messages of dml's schedules."""

import numpy as np
import pytest

from dml.wire.plans.pipeline import facts as pipeline_facts
from dml.wire.plans.pipeline import slots
from dml.wire.plans.pipeline.schedules import gpipe, one_forward_one_backward
from experiments.single import pipeline
from tests.checks import said
from tests.experiments.single import mesh_main
from tests.experiments.single.proof import broken, ran

SCHEDULES = {
    pipeline.gpipe: gpipe,
    pipeline.one_forward_one_backward: one_forward_one_backward,
}
SHAPE = 6, 2, 4  # microbatches x examples x width
NAMES = np.array(["F", "B"])  # by the number of a piece


def gradients(schedule, size, module=pipeline):
    """Return loss, gradients and microbatches in flight of each rank, and its bytes."""
    draws = np.random.default_rng(0)
    layers, inputs, targets = (
        draws.standard_normal(shape) for shape in ((5, 4, 4), SHAPE, SHAPE)
    )

    def program(comm):
        own = np.array_split(layers, size)[comm.rank]
        return module.pipeline(comm, schedule, own, inputs, targets)

    return ran(program, size)


@pytest.mark.parametrize("single", SCHEDULES, ids=lambda single: single.__name__)
def test_order_and_picture_are_those_of_the_schedule(single):
    for stages in range(1, 6):
        for count in range(1, 8):
            schedule = SCHEDULES[single](stages, count, pieces=1)
            cells = np.char.add(NAMES[schedule.piece], schedule.microbatch.astype(str))
            rows = np.where(schedule.piece < 0, " .", cells).T
            assert pipeline.picture(single, stages, count) == [*map(" ".join, rows)]
            idle = (stages - 1) / (count + stages - 1)
            assert pipeline_facts.bubble(schedule) == pytest.approx(idle)
            for rank, row in enumerate(rows):
                order = [f"{work}{m}" for work, m in single(rank, stages, count)]
                assert order == [cell for cell in row if cell != " ."]


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("single", SCHEDULES, ids=lambda single: single.__name__)
def test_messages_and_memory_are_those_of_the_schedule(single, size):
    schedule = SCHEDULES[single](size, SHAPE[0])
    table = slots.instructions(schedule)
    ahead, back = (
        (received >= 0).sum(axis=(0, 2))
        for received in (table.recv_activations, table.recv_gradients)
    )
    sent = [*ahead[1:], 0] + np.array([0, *back[:-1]])
    results, nbytes = zip(*gradients(single, size), strict=True)
    assert [*nbytes] == [*(sent * SHAPE[1] * SHAPE[2] * 8)]
    assert [most for *_, most in results] == [*pipeline_facts.in_flight(schedule)]


@pytest.mark.parametrize("size", (2, 3, 4))
@pytest.mark.parametrize("single", SCHEDULES, ids=lambda single: single.__name__)
def test_gradients_have_the_bits_of_one_rank(single, size):
    ((loss, whole, _), _), *_ = gradients(single, 1)
    results = [result for result, _ in gradients(single, size)]
    assert results[-1][0] == loss
    assert np.array_equal(np.concatenate([grads for _, grads, _ in results]), whole)


@pytest.mark.parametrize("check", mesh_main.named("pipelines"))
def test_gradients_have_the_bits_of_devices(check):
    text = said(mesh_main.__name__)
    assert f"{check}: ok\n" in text, text


@pytest.mark.parametrize("size", (1, 2, 3, 4, 8))
def test_the_program_runs_on_virtual_ranks_and_prints_the_words(size, capsys):
    counted = ran(pipeline.main, size)
    text = capsys.readouterr().out
    assert text.count("equal bits to one process with this schedule: True\n") == 2
    words = 2 * 6 * int(text.split("words sent by rank 0 in a step: ")[1].split()[0])
    assert counted[0][1] == words * 8


@pytest.mark.parametrize(
    "old, new",
    [
        ("(grad, rank + 1)", "(grad, rank + 1), grad.sort()"),
        ("range(count - ahead):  # steady", "range(count - ahead - 1):  # steady"),
        ("grads += terms", "grads[:] = terms"),
        ("grad * (output > 0)", "grad * (output >= 0)"),
    ],
)
def test_a_broken_line_changes_the_gradients(old, new, tmp_path):
    mutant = broken(tmp_path, pipeline, (old, new))
    expected = [grads for (_, grads, _), _ in gradients(pipeline.gpipe, 1)]
    try:
        found = gradients(mutant.one_forward_one_backward, 3, mutant)
    except Exception:  # ranks that wait for each other
        return
    found = np.concatenate([grads for (_, grads, _), _ in found])
    assert not np.allclose(found, expected[0], rtol=1e-9)


def test_too_many_ranks_are_refused():
    with pytest.raises(SystemExit, match="expected at most 8 ranks, got 9; start"):
        ran(pipeline.main, 9)
