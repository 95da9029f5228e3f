import numpy as np
import pytest

from dml.figures import style as figures
from dml.figures.schedules import WIDTH, boxes, draw, lines
from dml.wire.plans.pipeline.facts import bubble
from dml.wire.plans.pipeline.schedules import IDLE, SCHEDULES, SPLIT, make


def made(name, stages, microbatches):
    rounds = 2 if name in ("interleaved", "zb_v") else 1
    return make(name, stages, microbatches, rounds)


def test_rows_of_text_have_every_task_of_a_stage_and_are_shortened_in_the_middle():
    assert lines(make("gpipe", 2, 2)) == [
        "stage 0  0 1 . . . 1 1 0 0",
        "stage 1  . 0 1 1 1 0 0 . .",
    ]
    long = make("1f1b", 12, 120)
    for short, whole in zip(lines(long), lines(long, 10**6), strict=True):
        begin, _, end = short.partition("…")
        assert whole.startswith(begin.rstrip()) and whole.endswith(end)
        assert WIDTH - 4 <= len(short) <= WIDTH


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_forward_and_each_backward_is_one_box_of_its_length(name):
    schedule = made(name, 3, 6)
    found = boxes(schedule)
    each = 3 * 6 * schedule.rounds
    lengths = (1, 1, 1) if name in SPLIT else (1, schedule.pieces)
    boxes_of = [0, 3, 4, 5]  # stage, microbatch, round, kind
    count = len(lengths) * each
    assert len(np.unique(found[:, boxes_of], axis=0)) == len(found) == count
    for backward, length in enumerate(lengths):
        begin, end = found[found[:, 5] == backward, 1:3].T
        assert (end - begin == length).all()
    for stage, begin, end, number, turn, _ in found:
        assert (schedule.microbatch[begin:end, stage] == number).all()
        assert (schedule.round[begin:end, stage] == turn).all()
    idle = schedule._replace(piece=np.full_like(schedule.piece, IDLE))
    assert boxes(idle).shape == (0, 6)


def area(patch):
    x, y = patch.get_path().vertices.reshape(-1, 5, 2)[:, :4].transpose(2, 0, 1)
    return float((np.ptp(x, axis=1)).sum()), len(np.unique(y.mean(axis=1)))


def test_what_is_shaded_and_not_covered_is_the_bubble(tmp_path, monkeypatch):
    schedules = {name: made(name, 4, 8) for name in SCHEDULES}
    draw(tmp_path / "schedules", schedules)
    assert len(list(tmp_path.iterdir())) == 2
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure))
    draw("", schedules)
    for axes, (name, schedule) in zip(kept[0].axes, schedules.items(), strict=True):
        assert axes.get_title(loc="left") == name
        back, *front = axes.patches
        whole, rows = area(back)
        assert rows == 4 and whole == 4 * len(schedule.piece) / schedule.rounds
        covered = sum(area(patch)[0] for patch in front)
        # a hair's breadth parts a box from the next
        gaps = 0.1 if name in SPLIT else 0.05  # split backwards have more boxes
        assert bubble(schedule) < 1 - covered / whole < bubble(schedule) + gaps
        numbers = sorted(int(text.get_text()) for text in axes.texts)
        assert numbers == sorted(boxes(schedule)[:, 3])
