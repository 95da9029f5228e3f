from types import SimpleNamespace

import numpy as np

from dml.strategies.hybrid.parts import Part
from dml.strategies.hybrid.picture import row
from dml.types import Layer
from dml.wire.mesh.packed import packing


def test_devices_are_numbered_in_their_process_wherever_they_lie():
    ids = [(0, 0), (0, 1), (1, 2048), (1, 2049)]
    devices = [SimpleNamespace(process_index=rank, id=n) for rank, n in ids]
    grid = np.empty((2, 2, 1), object)  # data x stage x tensor
    grid[:, :, 0].flat = [devices[n] for n in (0, 2, 1, 3)]
    weights = {"a": np.zeros(250_000, np.float32)}
    part = Part(1, 1, 0, [[Layer(("a",), None)]], packing(weights))
    assert row([part], grid, 1) == ("1", "a", "all", "1.00 MB", "1:0 | 1:1")
