"""Exchanges of dense layers by factors, servers and all-reduces."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dml import sim
from dml.data.minibatches import draws, take
from dml.data.shards import bounds, shards
from dml.metrics.timer import Timer
from dml.models.factors import dense_layers, gradient_factors
from dml.models.model_problem import model_problem
from dml.models.networks.cnn import cnn
from dml.models.networks.mlp import mlp
from dml.strategies.factor_plan import SCHEMES, make_plan
from dml.strategies.poseidon import poseidon
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, Model
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.costs.factors import sent_factors
from dml.wire.plans.schedules import SCHEDULES, words_sent
from dml.wire.reducers.exact import exact
from tests.strategies import small
from tests.strategies.small import apart, close, same_bits

COUNT, BATCH = 60, 5  # uneven shards on 2 and 3 ranks
WIDE, NARROW = 40, 3  # factors pay for the first layer, and not for the last
KERNELS = {
    "hidden_00/kernel": (9, WIDE),
    "hidden_01/kernel": (WIDE, NARROW),
    "head/kernel": (NARROW, 4),
}
LAYERED = {"bucket_mb": 1e-9}  # one bucket for each layer


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    jax.config.update("jax_disable_most_optimizations", True)  # compiles in half of it
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@cache
def network(kind="mlp"):
    if kind == "cnn":
        return cnn((8, 8, 1), 4, 2), (8, 8, 1)
    return mlp((9,), 4, (WIDE, NARROW)), (9,)


@cache
def start(kind="mlp"):
    return network(kind)[0].init(jax.random.key(1))


@cache
def problem(kind="mlp"):
    model, shape = network(kind)
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((COUNT, *shape)).astype(np.float32)
    data = Batch(inputs, rng.integers(0, 4, COUNT).astype(np.int32))
    return model_problem(model, start(kind), examples=COUNT, take=partial(take, data))


@cache
def optimizer():
    return make("adam", 0.01)


def train(strategy, comm, *, kind="mlp", batch=BATCH, updates=2, **options):
    steps = strategy(
        problem(kind),
        draws(COUNT, batch, 0, updates * batch),
        optimizer(),
        comm=Metered(comm),
        timer=Timer(),
        **options,
    )
    return [step._replace(params=jax.device_get(step.params())) for step in steps]


def on_ranks(size, strategy=poseidon, *, allreduce="star", **options):
    """Return the steps of rank 0, and the words that all ranks sent in each update."""
    if strategy is poseidon:
        options["allreduce"] = ALLREDUCE[allreduce]
    elif strategy is synchronous:
        options["reducer"] = exact(ALLREDUCE[allreduce])
    ranks = sim.run(lambda comm: train(strategy, comm, **options), size)
    for other in ranks[1:]:
        assert same_bits(ranks[0], other)
    words = [[step.words_sent for step in steps] for steps in ranks]
    return ranks[0], np.array(words)


@pytest.mark.parametrize(
    "size, scheme, options",
    [
        (3, "factors", LAYERED),
        (3, "hybrid", LAYERED | {"accumulate": 2}),
    ],
)
def test_factors_train_as_serial_up_to_rounding(size, scheme, options):
    steps, _ = on_ranks(size, scheme=scheme, **options)
    (plain,) = sim.run(partial(train, serial), 1)
    close(steps, plain)
    numbers = [(step.number, step.examples) for step in steps]
    assert numbers == [(step.number, step.examples) for step in plain]


@pytest.mark.parametrize(
    "allreduce, options",
    [("star", {}), ("star", LAYERED), ("ring", {"accumulate": 2})],
)
def test_sums_have_the_bits_of_synchronous_training(allreduce, options):
    plain, words = on_ranks(3, synchronous, allreduce=allreduce, **options)
    steps, equal = on_ranks(3, allreduce=allreduce, scheme="allreduce", **options)
    assert same_bits(steps, plain) and (words == equal).all()
    if allreduce == "star":
        served, _ = on_ranks(3, scheme="server", allreduce="ring", **options)
        assert same_bits(served, plain)


def test_a_single_rank_has_the_bits_of_serial_training():
    (plain,) = sim.run(partial(train, serial), 1)
    steps, words = on_ranks(1)
    assert same_bits(steps, plain) and not words.any()


def test_the_first_gradient_is_one_product_of_the_factors_of_all_ranks():
    """With SGD of rate 1, the parameters change by the gradient."""
    size = 3
    index = next(draws(COUNT, BATCH, 0, BATCH))
    parts = [problem().take(part) for part in shards(index, size)]
    path = "hidden_01/kernel"
    pairs = [
        gradient_factors(network()[0].loss, start(), part, frozenset(KERNELS))[2][path]
        for part in parts
    ]
    shares = [np.float32(len(part.targets) / BATCH) for part in parts]
    inputs = np.concatenate([np.asarray(pair.inputs_KxM) for pair in pairs])
    outputs = np.concatenate(
        [
            np.asarray(pair.outputs_KxN) * share
            for pair, share in zip(pairs, shares, strict=True)
        ]
    )
    product = jax.jit(lambda *pair: pair[0].T @ pair[1])(inputs, outputs)

    def program(comm):
        steps = poseidon(
            problem(),
            [index],
            make("sgd", 1.0),
            comm=Metered(comm),
            timer=Timer(),
            allreduce=ALLREDUCE["ring"],
            scheme="factors",
        )
        return [jax.device_get(step.params()) for step in steps][0]

    want = start()["hidden_01"]["kernel"] - product
    for params in sim.run(program, size):
        assert np.array_equal(params["hidden_01"]["kernel"], want)


@pytest.mark.parametrize(
    "size, scheme, options",
    [(3, scheme, {}) for scheme in SCHEMES]
    + [(2, "factors", {}), (5, "hybrid", {}), (5, "factors", LAYERED)],
)
def test_words_sent_are_those_predicted(size, scheme, options):
    _, words = on_ranks(size, scheme=scheme, allreduce="ring", updates=1, **options)
    plan = make_plan(problem(), np.arange(BATCH), size, scheme, False)
    chosen = set(plan.kernels)
    if scheme == "hybrid":
        most = -(-BATCH // size)
        cheap = [
            path
            for path, (m, n) in KERNELS.items()
            if 2 * most * (size - 1) * (m + n) <= 2 * m * n * (2 * size - 2) / size
        ]
        assert chosen == set(cheap) and 0 < len(cheap) < len(KERNELS)
    else:
        assert chosen == (set(KERNELS) if scheme == "factors" else set())
    rows = [np.diff(bounds(BATCH, rank, size)).item() for rank in range(size)]
    leaves = sum(leaf.size for leaf in jax.tree.leaves(start()))
    leaves -= sum(KERNELS[path][0] * KERNELS[path][1] for path in chosen)
    predicted = words_sent(SCHEDULES["ring"](size, leaves + 1))
    by_rank = np.zeros(size, np.int64)
    for path in chosen:
        by_rank += sent_factors(rows, *KERNELS[path])
    assert words.sum() == predicted + by_rank.sum()
    if scheme == "factors":
        # each rank's share of the rest differs by rounding to chunks only
        rest = words[:, 0] - by_rank
        assert abs(rest - predicted / size).max() <= 2 * len(jax.tree.leaves(start()))


@pytest.mark.parametrize("options", [LAYERED, {"accumulate": 3}])
def test_ranks_without_examples_send_no_factors(options):
    steps, _ = on_ranks(5, batch=3, updates=2, scheme="factors", **options)
    (plain,) = sim.run(partial(train, serial, batch=3, updates=2), 1)
    close(steps, plain)


def test_no_array_moves_implicitly_to_a_device_after_the_first_update():
    def program(comm):
        steps = poseidon(
            problem(),
            draws(COUNT, BATCH, 0, 3 * BATCH),
            optimizer(),
            comm=Metered(comm),
            timer=Timer(),
            allreduce=ALLREDUCE["star"],
            scheme="factors",
            accumulate=2,
            **LAYERED,
        )
        numbers = [next(steps).number]
        with jax.transfer_guard("disallow"):  # as on real ranks
            return numbers + [step.number for step in steps]

    assert sim.run(program, 1) == [[1, 2, 3]]


def test_convolutions_are_summed_and_the_dense_layer_is_not():
    plan = make_plan(problem("cnn"), np.arange(BATCH), 2, "factors", False)
    assert set(plan.kernels) == {"Dense_0/kernel"}
    leaves = jax.tree.leaves(start("cnn"))
    assert len(jax.tree.leaves(plan.dense)) == len(leaves) - 1


def test_kernels_whose_product_is_a_weight_are_summed():
    """The gradient of each has a row for each column of the other, not for examples."""

    def loss(params, batch):
        weight = params["left"] @ params["right"]
        return jnp.mean((batch.inputs @ weight) ** 2)

    params = {"left": jnp.ones((9, 2)), "right": jnp.ones((2, 4))}
    model = Model(lambda key: params, loss, lambda params, batch: {})
    other = problem()._replace(params=params, model=model)
    assert dense_layers(loss, params, other.take(np.arange(3)))
    assert not make_plan(other, np.arange(BATCH), 2, "factors", False).kernels


def test_shared_weights_are_summed_and_weights_without_modules_have_factors():
    def program(comm):
        options = {"allreduce": ALLREDUCE["star"], "scheme": "factors"}
        own = options | LAYERED | {"drawn": small.BATCH}
        return small.train(poseidon, comm=Metered(comm), **own)

    steps = sim.run(program, 3)[0]
    plan = make_plan(small.problem(), np.arange(small.BATCH), 3, "factors", True)
    assert set(plan.kernels) == {"b1/w", "b2/w"}  # but not the weight of two layers
    close(steps, small.train(serial, drawn=small.BATCH))


def test_a_value_that_is_no_number_reaches_all_ranks():
    broken = jax.tree.map(np.array, start())
    broken["hidden_01"]["kernel"][0, 0] = np.nan

    def program(comm):
        steps = poseidon(
            problem()._replace(params=broken),
            draws(COUNT, BATCH, 0, BATCH),
            optimizer(),
            comm=Metered(comm),
            timer=Timer(),
            allreduce=ALLREDUCE["ring"],
        )
        return [(step.loss, jax.device_get(step.params())) for step in steps][0]

    for loss, params in sim.run(program, 3):
        assert np.isnan(loss) and np.isnan(params["hidden_00"]["kernel"]).any()


def test_a_run_without_minibatches_has_no_steps_and_unknown_schemes_are_refused():
    assert on_ranks(2, updates=0)[0] == []
    with pytest.raises(
        BadInput, match="expected one of hybrid, factors, .* for scheme of poseidon"
    ):
        on_ranks(2, scheme="fastest")


def test_a_run_resumes_from_the_state_of_the_optimizer():
    def half(comm, **start):
        options = {"allreduce": ALLREDUCE["star"], "scheme": "hybrid"}
        return small.train(poseidon, comm=Metered(comm), **options, **start)

    whole = sim.run(half, 2)[0]
    start_at = {"params": whole[1].params, "state": whole[1].state}
    rest = sim.run(partial(half, start=2 * small.BATCH, **start_at), 2)[0]
    assert same_bits(rest, whole[2:])
    assert apart(rest[-1].params, whole[1].params) > 0
