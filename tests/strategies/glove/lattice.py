"""A small corpus, and every strategy on it, for virtual and real ranks."""

import hashlib
from functools import partial
from typing import NamedTuple

import numpy as np

from dml import sim
from dml.data.text.cooccurrence import RECORD
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies.glove.problem import columns, minibatches, problem
from dml.strategies.glove.problem import order as order_of
from dml.strategies.glove.served import on_servers
from dml.strategies.glove.tiling import Order, by_row, by_word, tiled
from dml.strategies.operation import operation
from dml.strategies.rotation import rotation
from dml.strategies.serial import serial
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.shared.hogwild import hogwild
from dml.strategies.shared.workers import Descent
from dml.strategies.synchronous import synchronous
from dml.update.rows import AdaGrad, unpack
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.plans.rotation import rounds
from dml.wire.reducers.exact import exact
from dml.wire.server.consistency import Choice, consistency

WORDS, DIM, BLOCKS, ROWS, RATE = 90, 24, 8, 4, 0.05
BSP = consistency("bsp", Choice(), 1)
HOSTS = sim.Uniform(host=2, eager=0)


def corpus(count=1500, words=WORDS, seed=0):
    """Make records whose words are as uneven as those of a language."""
    draws = np.random.default_rng(seed)
    found = np.empty(count, RECORD)
    found["word"] = (draws.zipf(1.2, count) - 1) % words + 1
    found["context"] = (draws.zipf(1.2, count) - 1) % words + 1
    found["value"] = draws.random(count) * 20 + 0.1
    return found


def order(tables, blocks=BLOCKS, seed=0, rows=ROWS):
    cells = [cell for one in rounds(blocks, tables) for task in one for cell in task]
    return Order(cells, blocks, tables, rows, seed, 10.0, 0.75)


class Ended(NamedTuple):
    """What a rank has after its last epoch."""

    losses: tuple[float, ...]
    state: object  # by word; None where it was not collected
    words: tuple[int, ...]  # sent, by epoch


def steps(
    comm, how, state, found, blocks, epochs=3, batch=200, allreduce="ring", setup=None
):
    """Begin one of the WAYS on a state whose rows are in the order of the tiles."""
    task, count = problem(state, found, blocks, batch), len(found.logs)
    common = {"comm": comm, "timer": Timer()}
    reduce = ALLREDUCE[allreduce]
    if how in ("serial", "hogwild", "travel", "stay"):
        strategy = hogwild if how in ("serial", "hogwild") else rotation
        own = {} if strategy is hogwild else {"by_messages": how == "travel"}
        orders = [order_of(found)] * epochs
        return strategy(task, orders, Descent(lambda epoch: RATE), **common, **own)
    batches = (some for _ in range(epochs) for some in minibatches(count, batch))
    each = {"every": -(-count // batch)}
    if how == "server":
        setup = setup or Setup(roles(comm.size, colocated=comm.size == 1), BSP)
        common["timer"] = Timer(comm.Wtime)
        return on_servers(task, batches, RATE, setup=setup, **each, **common)
    rows = {"reducer": exact(reduce), "columns": columns(DIM)}
    strategy, own = {
        "minibatch": (serial, {}),
        "operation": (operation, {"allreduce": reduce, "batch": batch}),
        "sparse": (synchronous, rows | {"dense": lambda buffer, nbytes: nbytes < 0}),
        "dense": (synchronous, rows | {"dense": lambda buffer, nbytes: nbytes >= 0}),
    }[how]
    own |= common | each
    return strategy(task, batches, partial(AdaGrad, rate=RATE), **own)


WAYS = (
    *("serial", "hogwild", "travel", "stay"),
    *("minibatch", "operation", "sparse", "dense", "server"),
)


def begun(comm, tables=2, start=None, records=None):
    """Return a state by row, the tiles and their blocks; start is a state by word."""
    records = corpus() if records is None else records
    found, blocks = tiled(comm, records, WORDS, order(tables))
    return by_row(start or glove(WORDS, DIM, tables).init(1), blocks), found, blocks


def train(
    comm, how, tables=2, epochs=3, start=None, records=None, late=lambda comm: comm, **k
):
    """Train for some epochs; start is a state by word."""
    comm = late(Metered(comm))
    task = begun(comm, tables, start, records)
    taken = []
    for step in steps(comm, how, *task, epochs, **k):
        taken.append(step)
        if step.epoch == epochs:
            table = step.params()
    assert [step.epoch for step in taken] == list(range(1, epochs + 1))
    each = taken[0].number  # updates of an epoch
    assert [step.number for step in taken] == [n * each for n in range(1, epochs + 1)]
    return Ended(
        tuple(step.loss for step in taken),
        None if comm.rank else by_word(unpack(table, DIM), task[-1]),
        tuple(step.words_sent for step in taken),
    )


def digest(ended):
    """Name the bits of losses and state."""
    parts = [np.array(ended.losses).tobytes(), *(x.tobytes() for x in ended.state)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def on_ranks(size, how, network=None, seed=0, **k):
    """Train on virtual ranks; return what each has in the end."""
    found = sim.run(lambda comm: train(comm, how, **k), size, network, seed)
    assert all(one.losses == found[0].losses for one in found)
    return found
