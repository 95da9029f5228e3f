import re

import numpy as np
import pytest

from dml.figures.word_pairs import (
    FALLBACK_WORDS,
    GROUPS,
    MAX_PAIRS,
    MAX_PANELS,
    overlap,
    pca_plot,
    plane,
    relations,
)

EVERY = list(dict.fromkeys(" ".join(GROUPS.values()).replace(",", "").split()))


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def turn(D):
    return np.linalg.qr(gaussian(D, D, seed=1).astype(np.float64))[0]


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def test_unit_vectors_of_a_plane_keep_their_distances():
    angles = np.linspace(0, 2, 12)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    lengths = np.linspace(1, 5, 12)[:, None]  # which do not matter
    wide = (lengths * circle) @ turn(9)[:2]
    assert np.allclose(distances(plane(wide)), distances(circle))
    # in pairs: all firsts come before all seconds
    paired = plane(wide.reshape(6, 2, 9))
    order = [*range(0, 12, 2), *range(1, 12, 2)]
    assert np.allclose(distances(paired), distances(circle[order]))


@pytest.mark.parametrize("shape", [(7, 2, 10), (11, 10)])
def test_the_map_turns_with_nothing_and_the_mean_offset_is_positive(shape):
    vectors = gaussian(*shape)
    place = plane(vectors)
    assert np.allclose(plane(vectors @ turn(10)), place, atol=1e-5)  # of float32
    assert np.allclose(plane(-vectors), place, atol=1e-5)
    assert place.var(axis=0)[0] > place.var(axis=0)[1] > 0
    for seed in range(8):
        place = plane(gaussian(5, 2, 6, seed=seed))
        assert ((place[5:] - place[:5]).mean(axis=0) > 0).all()


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (3, 2, 1)])
def test_a_plane_is_found_where_there_is_less_than_one(shape):
    place = plane(np.zeros(shape, np.float32))
    assert np.array_equal(place, np.zeros((np.prod(shape[:-1]), 2)))


def test_relations_hold_pairs_of_known_words_of_any_case_the_frequent_first():
    words = ["China", "beijing", "the", "france", "ROME", "Italy", "paris", "tokyo"]
    assert [index.tolist() for index in relations(words).values()] == [
        [[0, 1], [5, 4], [3, 6]]
    ]
    assert relations(words[:-2]) == {}  # two pairs show nothing
    assert [len(index) for index in relations(EVERY).values()] == [
        MAX_PAIRS
    ] * MAX_PANELS


OTHERS = [f"w{i}" for i in range(100)]
PAIRED = [EVERY[row] for index in relations(EVERY).values() for row in index.ravel()]


@pytest.mark.parametrize(
    "words, expected", [(EVERY, PAIRED), (OTHERS, OTHERS[:FALLBACK_WORDS])]
)
def test_every_known_word_or_else_the_most_frequent_is_written(
    tmp_path, words, expected
):
    pca_plot(tmp_path / "map", words, gaussian(len(words), 8))
    texts = re.findall(r"<!-- (.*?) -->", (tmp_path / "map.svg").read_text("utf-8"))
    assert sorted(word for word in texts if word in words) == sorted(expected)
    assert set(relations(words)) <= set(texts)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_boxes_overlap_by_the_area_that_they_share():
    one, other = (0, 0, 4, 3), (1, 2, 9, 9)
    assert overlap(one, other) == overlap(other, one) == 3
    unit = (0, 0, 1, 1)
    assert overlap(unit, (2, 0, 3, 1)) == overlap(unit, (0, 2, 1, 3)) == 0
