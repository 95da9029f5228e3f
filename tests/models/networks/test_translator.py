"""On devices in a process of its own; what needs none is here."""

import numpy as np
import pytest

from dml.models.networks.translator import READS, WRITES, spans, ticks, translator, wave
from dml.types import BadInput
from tests.checks import said
from tests.models.networks.historical_main import TRANSLATOR

SHAPES = [(1, 1, 1), (1, 3, 2), (2, 1, 1), (4, 3, 2), (5, 2, 9), (8, 30, 31)]


@pytest.mark.parametrize("name", [check.__name__ for check in TRANSLATOR])
def test_on_four_devices(name):
    text = said("tests.models.networks.historical_main")
    assert f"{name}: ok\n" in text, text


@pytest.mark.parametrize("layers, read, written", SHAPES)
def test_each_time_of_each_layer_comes_after_what_it_needs(layers, read, written):
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


@pytest.mark.parametrize("layers, read, written", SHAPES)
def test_spans_say_what_all_layers_do_in_their_ticks(layers, read, written):
    times_KxN = wave(layers, read + written)
    passed = 0
    for phase, span in spans(layers, read, written):
        assert span.start == passed
        passed = span.stop
        for times in times_KxN[:, span.start : span.stop].T:
            does = {READS if at < read else WRITES for at in times if at >= 0}
            assert phase is None or does == {phase}
    assert passed == ticks(layers, read + written)


def test_a_network_of_nothing_is_refused():
    for sizes in ((0, 3, 2), (5, 0, 2), (5, 3, 0)):
        with pytest.raises(
            BadInput, match="expected words, width and layers of 1 or more, got"
        ):
            translator(*sizes)
