import numpy as np
import pytest

from dml.models.networks.alexnet import PUBLISHED, AlexNetSizes, alexnet, network_layers
from dml.models.networks.towers import crossing_bytes, tower_model
from dml.models.networks.translator import (
    DECODER,
    ENCODER,
    phases,
    ticks,
    translator,
    wave,
)
from dml.types import BadInput
from tests.checks import said
from tests.models.networks.historical_main import CHECKS


@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_four_devices(name):
    text = said("tests.models.networks.historical_main")
    assert f"{name}: ok\n" in text, text


def test_the_papers_sizes_have_the_papers_maps():
    layers = network_layers(
        (224, 224, 3), 1000, AlexNetSizes(unit=32, kernel=11, stride=4), PUBLISHED
    )
    made = [one.outputs for one in layers]
    assert made == [96, 256, 384, 384, 256, 4096, 4096, 1000]
    crossing = [number for number, one in enumerate(layers, 1) if one.reads_both]
    assert crossing == [1, *PUBLISHED]
    assert [one.kernel[0] for one in layers[:5]] == [11, 5, 3, 3, 3]
    assert [one.normalised for one in layers] == [True] * 2 + [False] * 6
    # our padding leaves maps of 7 x 7 after layer 5, where the paper's are of 6 x 6
    assert [one.input_shape[0] for one in layers[:6]] == [224, 28, 14, 14, 14, 7]
    layers[5] = layers[5]._replace(kernel=(6, 6))
    inputs = [one.input_shape[2] // (1 if one.reads_both else 2) for one in layers]
    sizes = [np.prod(one.kernel) * one.outputs for one in layers]
    assert np.dot(inputs, sizes) == 60_954_656  # "60 million parameters"


def test_what_crosses_is_maps_and_scores():
    about = ((8, 8, 1), 4, AlexNetSizes(unit=2, kernel=3, stride=1))
    assert crossing_bytes(network_layers(*about, ()), batch=3) == 4 * 3 * 4
    met = 2 * 2 * 2 * 16  # of layer 3: 2 x 2 maps, 8 of each tower, there and back
    assert crossing_bytes(network_layers(*about, (3,)), batch=3) == 4 * 3 * (4 + met)
    for sizes in ((0, 3, 2), (5, 0, 2), (5, 3, 0)):
        with pytest.raises(
            BadInput, match="expected words, width and layers of 1 or more, got"
        ):
            translator(*sizes)


@pytest.mark.parametrize("make", [alexnet, tower_model])
@pytest.mark.parametrize(
    "change, message",
    [
        ({"shape": (8, 8)}, "images HxWxC.*got"),
        ({"classes": 5}, "multiples of 2.* classes=5"),
        ({"sizes": AlexNetSizes(unit=3)}, "unit=3"),
        ({"sizes": AlexNetSizes(stride=0)}, "of 1 or more"),
        ({"crossings": (1,)}, r"2 to 8, got \(1,\)"),
        ({"crossings": (3, 9)}, "3, 9"),
    ],
)
def test_what_cannot_be_halved_is_refused(make, change, message):
    with pytest.raises(BadInput, match=message):
        make(**{"shape": (8, 8, 1), "classes": 4} | change)


SHAPES = [(1, 1, 1), (1, 3, 2), (2, 1, 1), (4, 3, 2), (5, 2, 9), (8, 30, 31)]


@pytest.mark.parametrize("layers, read, written", SHAPES)
def test_each_time_comes_after_what_it_needs_and_phases_are_those_of_the_ticks(
    layers, read, written
):
    length = read + written
    times_KxN = wave(layers, length)
    assert times_KxN.shape == (layers, ticks(layers, length))
    when = {}
    for (layer, tick), at in np.ndenumerate(times_KxN):
        if at >= 0:
            assert (layer, at) not in when
            when[layer, at] = tick
    assert len(when) == layers * length
    for (layer, at), tick in when.items():
        assert tick > when.get((layer, at - 1), -1)
        # what the layer below made came by the end of the tick before
        assert tick == when.get((layer - 1, at), at - 1) + 1
    passed = 0
    for phase, span in phases(layers, read, written):
        assert span.start == passed
        passed = span.stop
        for times in times_KxN[:, span.start : span.stop].T:
            does = {ENCODER if at < read else DECODER for at in times if at >= 0}
            assert phase is None or does == {phase}
    assert passed == ticks(layers, length)
