"""What experts on four devices must do."""

import math
import re
from functools import cache

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from dml.models.layers import experts as module
from dml.models.layers.experts import Mixture, experts, init_params, specs
from dml.types import BadInput
from tests.models.layers.axes_main import DEVICES, close, drawn, line

ROWS = 48
ONE = Mixture(experts=8, width=6, hidden=10, choices=1, factor=1.0)
TWO = ONE._replace(choices=2, factor=1.25)


def rounded(array):
    """Return multiples of 1/64: a product of two such matrices is exact.

    The order of a sum depends on the number of rows and on the processor.
    """
    return np.round(array * 64) / np.float32(64)


def drawn_rows():
    return rounded(drawn(3, ROWS, ONE.width))


def params(mixture):
    """Return params with biases, and a router that sends some experts too many rows."""
    found = jax.device_get(init_params(mixture, jax.random.key(1)))
    for number, name in enumerate(("up", "down")):
        found[name]["bias"] = drawn(number, *found[name]["bias"].shape)
    lean_E = np.linspace(0, 1, mixture.experts, dtype=np.float32)
    found["router"]["kernel"] = rounded(2 * found["router"]["kernel"] + lean_E[None])
    return found


@cache
def whole(mixture):
    """Return value, mixed, measures and gradients of the dense reference."""
    targets_RxD = drawn(4, ROWS, mixture.width)

    def loss(params, rows_RxD):
        rows_GxRxD = rows_RxD.reshape(DEVICES, -1, mixture.width)
        mixed_GxRxD, measures = experts(params, rows_GxRxD, mixture)
        mixed_RxD = mixed_GxRxD.reshape(rows_RxD.shape)
        return (mixed_RxD * targets_RxD).sum() + measures.balance, (mixed_RxD, measures)

    call = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    return jax.device_get(call(params(mixture), drawn_rows()))


def shared(mixture):
    """Return the same from four devices: each has a share of the loss."""

    def device(params, rows_RxD, targets_RxD):
        def loss(params, rows_RxD):
            mixed_1xRxD, measures = experts(params, rows_RxD[None], mixture, "expert")
            mixed_RxD = mixed_1xRxD[0]
            value = (mixed_RxD * targets_RxD).sum() + measures.balance / DEVICES
            return value, (mixed_RxD, measures)

        call = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (value, (mixed_RxD, seen)), (by_params, by_rows) = call(params, rows_RxD)
        by_params["router"] = jax.lax.psum(by_params["router"], "expert")
        value, dropped, load_E = jax.lax.psum((value, *seen[:2]), "expert")
        seen = (dropped, load_E, jax.lax.pmean(seen.balance, "expert"))
        return (value, (mixed_RxD, module.Measures(*seen))), (by_params, by_rows)

    cut = P("expert")
    call = jax.shard_map(
        device,
        mesh=line("expert"),
        in_specs=(specs(), cut, cut),
        out_specs=((P(), (cut, P())), (specs(), cut)),
        check_vma=False,
    )
    rows = [drawn_rows(), drawn(4, ROWS, mixture.width)]
    return jax.device_get(jax.jit(call)(params(mixture), *rows))


def check_experts_on_four_devices_are_those_on_one():
    for mixture in (ONE, TWO):
        found, wanted = shared(mixture), whole(mixture)
        close(found, wanted)
        (_, (mixed_RxD, seen)), (by_params, _) = found
        (_, (wanted_RxD, measures)), (by_whole, _) = wanted
        assert np.array_equal(seen.load_E, measures.load_E)
        assert 0 < seen.dropped == measures.dropped < ROWS * mixture.choices // 2
        if mixture is TWO:  # XLA may round the product and sum of two choices once
            continue
        # Rows meet their experts in the same order: the same bits, but for sums over
        # devices (the router's gradient) and over experts' and the router's (rows').
        assert np.array_equal(mixed_RxD, wanted_RxD)
        for name in ("up", "down"):
            jax.tree.map(np.testing.assert_array_equal, by_params[name], by_whole[name])


def by_hand(mixture, turn=0.0):
    """Return mixed_RxD, how many were dropped, balance: a choice after another.

    To the router is added that number times its own sine, in float64.
    """
    tree = jax.tree.map(np.float64, params(mixture))
    tree["router"]["kernel"] += turn * np.sin(tree["router"]["kernel"])
    rows_RxD = np.float64(drawn_rows())
    scores_RxE = rows_RxD @ tree["router"]["kernel"]
    chances_RxE = np.exp(scores_RxE) / np.exp(scores_RxE).sum(axis=1, keepdims=True)
    mixed_RxD, dropped, balance = np.zeros_like(rows_RxD), 0, 0.0
    each = ROWS // DEVICES
    room = math.ceil(mixture.factor * mixture.choices * each / mixture.experts)
    for group in np.split(np.arange(ROWS), DEVICES):
        load_E = np.zeros(mixture.experts)
        best_RxK = np.argsort(-chances_RxE, axis=1)[:, : mixture.choices]
        for choice in range(mixture.choices):
            for row in group:
                expert = best_RxK[row, choice]
                load_E[expert] += 1
                if load_E[expert] > room:
                    dropped += 1
                    continue
                inner = rows_RxD[row] @ tree["up"]["kernel"][expert]
                inner = inner + tree["up"]["bias"][expert]
                bend = math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)
                inner = inner * (1 + np.tanh(bend)) / 2
                made = inner @ tree["down"]["kernel"][expert]
                gate = chances_RxE[row, expert]
                if mixture.choices > 1:
                    gate /= chances_RxE[row, best_RxK[row]].sum()
                mixed_RxD[row] += gate * (made + tree["down"]["bias"][expert])
        shares_E = load_E / load_E.sum()
        mean_E = chances_RxE[group].mean(axis=0)
        balance += mixture.experts * shares_E @ mean_E / DEVICES
    return mixed_RxD, dropped, balance


def check_every_row_counts_once_by_its_gate_or_is_dropped():
    for mixture in (ONE, TWO):
        (_, (mixed_RxD, measures)), _ = whole(mixture)
        wanted_RxD, dropped, balance = by_hand(mixture)
        close((mixed_RxD, measures.balance), (wanted_RxD, balance))
        assert measures.dropped == dropped > 0
        assert measures.load_E.sum() == ROWS * mixture.choices


def check_the_router_learns_from_rows_and_from_balance():
    turn = 1e-6  # too small for a row to change its experts
    for mixture in (ONE, TWO):
        losses = []
        for sign in (-1, 1):
            mixed_RxD, _, balance = by_hand(mixture, sign * turn)
            targets_RxD = drawn(4, ROWS, mixture.width)
            losses.append([(mixed_RxD * targets_RxD).sum(), balance])
        from_rows, from_balance = np.subtract(*losses[::-1]) / (2 * turn)
        kernel_DxE = params(mixture)["router"]["kernel"]
        _, (by_params, _) = whole(mixture)
        slope = np.vdot(by_params["router"]["kernel"], np.sin(kernel_DxE))
        assert slope == pytest.approx(from_rows + from_balance, rel=1e-4)
        assert min(abs(from_rows), abs(from_balance)) > 1e-2


def check_experts_have_four_all_to_alls_and_no_other_collective():
    def device(tree, rows_RxD):
        def loss(tree, rows_RxD):
            return experts(tree, rows_RxD[None], TWO, "expert")[0].sum()

        return jax.grad(loss, (0, 1))(tree, rows_RxD)

    cut = P("expert")
    call = jax.shard_map(
        device,
        mesh=line("expert"),
        in_specs=(specs(), cut),
        out_specs=(specs(), cut),
        check_vma=False,
    )
    said = str(jax.make_jaxpr(call)(params(TWO), drawn(3, ROWS, TWO.width)))
    slots = module.capacity(TWO, ROWS // DEVICES) * TWO.experts
    sent = re.findall(r"f32\[([\d,]+)\] = all_to_all", said)
    assert [math.prod(map(int, s.split(","))) for s in sent] == [slots * TWO.width] * 4
    assert not re.search(r"= (psum|pmean|all_gather|ppermute|reduce_scatter)", said)


def check_experts_that_devices_cannot_share_are_refused():
    six, cut = ONE._replace(experts=6), P("expert")
    call = jax.shard_map(
        lambda rows_RxD: experts({}, rows_RxD[None], six, "expert")[0],
        **{"mesh": line("expert"), "in_specs": cut, "out_specs": cut},
    )
    with pytest.raises(BadInput) as raised:
        jax.eval_shape(call, drawn(3, ROWS, ONE.width))
    assert re.fullmatch(r"expected .* got 6; pass a multiple of 4", str(raised.value))


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]
