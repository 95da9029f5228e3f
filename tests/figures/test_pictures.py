import numpy as np
import pytest

from dml.figures import pictures
from dml.figures.pictures import confusion, pixels, select_examples, softmax


def test_the_surest_mistakes_come_first_then_the_closest_calls():
    chances = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7], [0.55, 0.45]])
    classes = np.array([0, 0, 0, 1, 0])
    assert select_examples(classes, chances).tolist() == [2, 1, 4, 3, 0]


@pytest.mark.parametrize("wrong, right", [(60, 60), (3, 60), (60, 3), (2, 4), (0, 50)])
def test_a_grid_is_full_of_other_images_and_has_room_for_right_ones(wrong, right):
    chances = np.tile([0.2, 0.8], (wrong + right, 1))
    classes = np.repeat([0, 1], [wrong, right])
    found = select_examples(classes, chances)
    room = pictures.COLUMNS * pictures.ROWS
    assert len(set(found.tolist())) == len(found) == min(room, wrong + right)
    assert (found >= wrong).sum() >= min(right, room - pictures.MAX_ERRORS)


def test_confusion_counts_every_example_once():
    classes, guesses = np.random.default_rng(0).integers(0, 4, (2, 99))
    counts = confusion(classes, guesses, 5)
    assert np.array_equal(counts.sum(axis=1), np.bincount(classes, minlength=5))
    assert np.array_equal(counts.sum(axis=0), np.bincount(guesses, minlength=5))
    assert np.trace(counts) == (classes == guesses).sum()


def test_pixels_are_ink_on_paper_small_and_within_their_range():
    ramp = np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 2, 4, 1)
    assert pixels(ramp, np.array([0]))[0, 0, 0].tolist() == [255] * 3
    assert pixels(ramp, np.array([0]))[0, 1, 3].tolist() == [0] * 3
    # blocks become their means; normalised images are brought into 0 … 1
    large = np.random.default_rng(0).standard_normal((3, 90, 80, 3))
    found = pixels(large, np.array([2, 0]))
    assert found.shape == (2, 30, 26, 3)
    block = large[[2, 0], :3, :3].mean(axis=(1, 2))
    whole = large[[2, 0], :90, :78].reshape(2, 30, 3, 26, 3, 3).mean(axis=(2, 4))
    low, top = whole.min(), max(1, whole.max())
    expected = 255 * (block - low) / (top - low)
    assert np.allclose(found[:, 0, 0], expected, atol=1)  # a colour is a whole number


def test_softmax_does_not_overflow_and_ignores_a_common_term():
    scores = np.array([[1000.0, 1001, 999], [0, 1, -1]])
    assert np.allclose(*softmax(scores))
    assert np.allclose(softmax(scores).sum(axis=1), 1)


def test_the_picture_names_classes_and_counts_hits(tmp_path):
    chance = np.random.default_rng(0)
    images, scores = chance.random((40, 8, 8, 1)), chance.standard_normal((40, 3))
    classes = chance.integers(0, 3, 40)
    names = ["$a$b", "字", "frog"]  # neither mathematics nor a letter of the font
    pictures.draw(tmp_path / "a", images, classes, scores, names)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    for words in ("true: frog", "true: $a$b", "true: □", "predicted class"):
        assert f"<!-- {words} -->" in svg
    hits = (scores.argmax(axis=1) == classes).sum()
    assert f"<!-- {hits} of 40 correct" in svg
