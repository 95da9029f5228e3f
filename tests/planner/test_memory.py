"""Bytes of a device: the multiples of ZeRO, and activations in flight."""

import pytest

from dml.planner import memory, runs
from dml.planner.devices import DEVICES
from dml.planner.memory import MemoryCoefficients
from dml.planner.runs import Mesh
from dml.planner.shapes import MODELS, Shape

TINY = Shape(8, 1024, 8, 4096, 1024, 512)
PARAMETERS = 8 * 12 * 1024**2 + 1024**2


def parts(mesh: Mesh, batch: int = 64, shape: Shape = TINY):
    return memory.parts(
        runs.make(shape, mesh, DEVICES["a100"], batch), MemoryCoefficients()
    )


@pytest.mark.parametrize("zero, parameters, gradients, optimizer", [
    (0, 2, 2, 12), (1, 2, 2, 12 / 8), (2, 2, 2 / 8, 12 / 8), (3, 4 / 8, 4 / 8, 8 / 8),
])  # fmt: skip
def test_bytes_of_a_parameter(zero, parameters, gradients, optimizer):
    found = parts(Mesh(data=8, zero=zero))
    assert found["parameters"] == pytest.approx(parameters * PARAMETERS)
    assert found["gradients"] == pytest.approx(gradients * PARAMETERS)
    assert found["optimizer"] == pytest.approx(optimizer * PARAMETERS)


def test_gradients_in_float32_take_four_bytes_more():
    run = runs.make(TINY, Mesh(), DEVICES["a100"], 64)
    found = memory.parts(run._replace(gradients32=1.0), MemoryCoefficients())
    assert found["gradients"] == pytest.approx(6 * PARAMETERS)


def test_experts_are_divided():
    shape = TINY._replace(experts=8, top_k=2)
    expert = 8 * 2 * 1024 * 4096  # of all blocks
    whole, shared = (
        parts(Mesh(data=8, expert=expert_axis), shape=shape)["parameters"]
        for expert_axis in (1, 8)
    )
    assert whole - shared == pytest.approx(2 * 7 * expert)


def test_the_first_stage_holds_as_many_micro_batches_as_stages():
    activations = [
        parts(Mesh(stage=stage, micro_batch=1))["activations"] for stage in (1, 2, 4, 8)
    ]
    assert activations == pytest.approx([activations[0]] * 4)
    few = parts(Mesh(stage=8, micro_batch=32))  # two micro batches in flight
    assert few["activations"] == pytest.approx(32 * 2 / 8 * activations[0])


def test_remat_keeps_the_inputs_of_blocks():
    found = parts(Mesh(micro_batch=2, remat=1.0))
    inputs = 8 * 2 * 2 * 512 * 1024
    assert found["activations"] == pytest.approx(
        MemoryCoefficients().fragments * inputs
    )


def test_gpt3_needs_16_bytes_for_each_parameter():
    shape = MODELS["gpt3_175b"]
    found = parts(Mesh(tensor=8, remat=1.0), 1, shape)
    names = ("parameters", "gradients", "optimizer")
    assert sum(found[name] for name in names) * 8 == 16 * shape.parameters
