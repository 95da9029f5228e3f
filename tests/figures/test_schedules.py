import numpy as np
import pytest

from dml.figures import style as figures
from dml.figures.schedules import BUBBLE, WIDTH, boxes, draw, lines
from dml.wire.plans.pipeline_facts import bubble
from dml.wire.plans.pipelines import IDLE, SCHEDULES, make


def made(name, stages, microbatches):
    return make(name, stages, microbatches, 2 if name == "interleaved" else 1)


def test_rows_of_text_say_what_every_stage_does():
    assert lines(make("gpipe", 2, 2)) == [
        "stage 0  0 1 . . . 1 1 0 0",
        "stage 1  . 0 1 1 1 0 0 . .",
    ]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("stages, microbatches", [(4, 8), (4, 32), (12, 120)])
def test_a_long_row_is_shortened_in_the_middle_till_it_fits(name, stages, microbatches):
    schedule = made(name, stages, microbatches)
    short, whole = lines(schedule), lines(schedule, 10**6)
    assert len(short) == stages
    for one, full in zip(short, whole, strict=True):
        assert len(one) <= WIDTH
        begin, left_out, end = one.partition("…")
        assert full.startswith(begin.rstrip()) and full.endswith(end)
        assert bool(left_out) == (len(full) > WIDTH)
        assert not left_out or len(one) > WIDTH - 2 * len(f" {microbatches}")
        assert len({len(row) for row in short}) == 1  # ticks stand below each other


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_forward_and_each_backward_is_one_box_of_its_length(name):
    schedule = made(name, 3, 6)
    found = boxes(schedule)
    each = 3 * 6 * schedule.rounds
    assert len(np.unique(found[:, [0, 3, 4, 5]], axis=0)) == len(found) == 2 * each
    for backward, length in enumerate((1, schedule.pieces)):
        begin, end = found[found[:, 5] == backward, 1:3].T
        assert (end - begin == length).all()
    for stage, begin, end, number, turn, _ in found:
        assert (schedule.microbatch[begin:end, stage] == number).all()
        assert (schedule.round[begin:end, stage] == turn).all()


def drawn(monkeypatch, schedules):
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure))
    draw("", schedules)
    return kept[0].axes


def area(patch):
    x, y = patch.get_path().vertices.reshape(-1, 5, 2)[:, :4].transpose(2, 0, 1)
    return float((np.ptp(x, axis=1)).sum()), len(np.unique(y.mean(axis=1)))


def test_what_is_shaded_and_not_covered_is_the_bubble(monkeypatch):
    panels = drawn(monkeypatch, {name: made(name, 4, 8) for name in SCHEDULES})
    assert [axes.get_title(loc="left") for axes in panels] == list(SCHEDULES)
    for axes, name in zip(panels, SCHEDULES, strict=True):
        schedule = made(name, 4, 8)
        back, *front = axes.patches
        assert back.get_label() == "bubble"
        whole, rows = area(back)
        assert rows == 4 and whole == 4 * len(schedule.piece) / schedule.rounds
        covered = sum(area(patch)[0] for patch in front)
        # a hair's breadth parts a box from the next
        assert bubble(schedule) < 1 - covered / whole < bubble(schedule) + 0.05
        colours = {patch.get_facecolor() for patch in axes.patches}
        assert len(colours) == 1 + 2 * schedule.rounds
        said = sorted(int(text.get_text()) for text in axes.texts)
        assert said == sorted(boxes(schedule)[:, 3])
        labels = axes.get_legend_handles_labels()[1]
        assert labels == ["bubble", "forward", "backward"]


def test_numbers_stand_only_where_there_is_room(monkeypatch):
    (axes,) = drawn(monkeypatch, {"long": make("gpipe", 2, 200)})
    assert not axes.texts
    (axes,) = drawn(monkeypatch, {"high": make("gpipe", 40, 2)})
    assert not axes.texts
    (axes,) = drawn(monkeypatch, {"middling": make("gpipe", 2, 30)})
    assert {len(text.get_text()) for text in axes.texts} == {1, 2}


def test_schedules_are_written_as_svg_and_png(tmp_path):
    draw(tmp_path / "schedules", {"one": make("1f1b", 1, 1)})
    assert BUBBLE in (tmp_path / "schedules.svg").read_text()
    assert (tmp_path / "schedules.png").stat().st_size > 0


def test_a_stage_that_never_works_has_no_box():
    schedule = make("gpipe", 2, 1)
    idle = schedule._replace(piece=np.full_like(schedule.piece, IDLE))
    assert boxes(idle).shape == (0, 6)
