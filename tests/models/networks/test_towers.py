"""On devices in a process of its own; what needs none is here."""

import numpy as np
import pytest

from dml.models.networks.alexnet import PUBLISHED, Sizes, alexnet, plan
from dml.models.networks.towers import crossing_bytes, tower
from dml.types import BadInput
from tests.checks import said
from tests.models.networks.historical_main import TOWERS


@pytest.mark.parametrize("name", [check.__name__ for check in TOWERS])
def test_on_two_devices(name):
    text = said("tests.models.networks.historical_main")
    assert f"{name}: ok\n" in text, text


def test_the_papers_sizes_have_the_papers_maps():
    layers = plan((224, 224, 3), 1000, Sizes(unit=32, kernel=11, stride=4), PUBLISHED)
    made = [one.makes for one in layers]
    assert made == [96, 256, 384, 384, 256, 4096, 4096, 1000]
    assert [number for number, one in enumerate(layers, 1) if one.crosses] == [
        1,
        *PUBLISHED,
    ]
    assert [one.kernel[0] for one in layers[:5]] == [11, 5, 3, 3, 3]
    assert [one.normalised for one in layers] == [True] * 2 + [False] * 6
    # our padding leaves maps of 7 x 7 after layer 5, where the paper's are of 6 x 6
    assert [one.sees[0] for one in layers[:6]] == [224, 28, 14, 14, 14, 7]
    layers[5] = layers[5]._replace(kernel=(6, 6))
    weights = sum(
        np.prod(one.kernel) * one.sees[2] // (1 if one.crosses else 2) * one.makes
        for one in layers
    )
    assert weights == 60_954_656  # "60 million parameters"


def test_what_crosses_is_maps_and_their_gradient_and_scores():
    about = ((8, 8, 1), 4, Sizes(unit=2, kernel=3, stride=1))
    assert crossing_bytes(plan(*about, ()), batch=3) == 4 * 3 * 4
    met = 2 * 2 * 2 * 16  # of layer 3: 2 x 2 maps, 8 of each tower, there and back
    assert crossing_bytes(plan(*about, (3,)), batch=3) == 4 * 3 * (4 + met)


@pytest.mark.parametrize("make", [alexnet, tower])
@pytest.mark.parametrize(
    "change, message",
    [
        ({"shape": (8, 8)}, "expected images HxWxC.*got"),
        ({"classes": 5}, "multiples of 2, .* got unit=4 and classes=5"),
        ({"sizes": Sizes(unit=3)}, "multiples of 2, .* got unit=3"),
        ({"sizes": Sizes(stride=0)}, "sizes of 1 or more"),
        ({"crossings": (1,)}, r"crossings at layers 2 to 8, got \(1,\)"),
        ({"crossings": (3, 9)}, r"got \(3, 9\)"),
    ],
)
def test_what_cannot_be_halved_is_refused(make, change, message):
    with pytest.raises(BadInput, match=message):
        make(**{"shape": (8, 8, 1), "classes": 4} | change)
