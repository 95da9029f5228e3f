"""The single file of HOGWILD! has the bits of the strategies in shared memory.

Orders differ between runs of several workers, except for CYCLADES: other policies are
compared with one worker, and their changes with several are counted.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from dml.metrics.timer import Timer
from dml.models.sparse import svm
from dml.models.sparse.problem import problem
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.hogwild import hogwild as dml_hogwild
from dml.strategies.shared.workers import Descent
from dml.types import Batch
from dml.wire.collectives import tree_allreduce
from dml.wire.memory import global_lock, locked, round_robin
from dml.wire.memory import hogwild as lock_free
from dml.wire.memory.state import Order
from experiments.single import hogwild
from tests.experiments.single.proof import broken, ran

WEIGHTS, EXAMPLES, EPOCHS = hogwild.WEIGHTS, 200, 2
# long vectors, so that an example that is visited late may change nothing
VISITS = [(f, 3 * x, y) for f, x, y in map(hogwild.draw_example, range(EXAMPLES))]
POLICIES = {
    "lock-free": (lock_free,),
    "locked": (global_lock, locked),
    "round robin": (round_robin,),
}


class Window:
    """A shared window of virtual ranks, with the methods of mpi4py."""

    def __init__(self, nbytes, itemsize, comm):
        self.window, self.pause = (
            comm.platform.shared_window(nbytes),
            comm.platform.pause,
        )

    def Shared_query(self, rank):
        return self.window.parts[rank], 8

    def Fetch_and_op(self, origin, result, rank):
        (word,) = self.window.parts[rank][:8].view(np.int64)
        result[0] = word
        self.window.parts[rank][:8].view(np.int64)[:] += origin

    def Sync(self):
        self.pause()

    def Lock_all(self): ...
    def Flush(self, rank): ...
    def Unlock_all(self): ...
    def Free(self): ...


def single(policy, workers, visits=VISITS * EPOCHS, module=hogwild, order=0):
    """Return the weights and the numbers of changes of every rank, and its bytes."""
    module.allocate_shared = Window
    return ran(lambda comm: module.train(comm, policy, visits), workers, order=order)


def modular(strategy, ranks=1, threads=1, **options):
    """Return the weights and bytes of a strategy by rank, in the same order."""
    features, x, y = (np.array(field) for field in zip(*VISITS, strict=True))
    starts = np.arange(0, 3 * EXAMPLES + 1, 3)
    inputs = csr_matrix((x.ravel(), features.ravel(), starts), (EXAMPLES, WEIGHTS))
    data = svm.documents(Batch(inputs, y), 0.0, np.float64)
    task = problem(svm, data, np.zeros(WEIGHTS))
    visits = Order(np.arange(EXAMPLES // hogwild.BLOCK), hogwild.BLOCK, EXAMPLES)
    update = Descent(lambda epoch: hogwild.RATE)

    def program(comm):
        how = {"comm": comm, "timer": Timer(), "threads": threads, **options}
        steps = strategy(task, [visits] * EPOCHS, update, **how)
        return [step.params() for step in steps][-1]

    return ran(program, ranks)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_worker_has_the_bits_of_the_strategy(policy):
    (((w, _), sent),) = single(policy, 1)
    assert sent == 0
    for module in POLICIES[policy]:
        assert w.tobytes() == modular(dml_hogwild, policy=module)[0][0].tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_cyclades_has_the_bits_of_the_strategy_on_any_workers(workers):
    deferred = np.zeros(WEIGHTS, bool)
    options = {"deferred": deferred, "batch": hogwild.BLOCK}
    ((wanted, _),) = modular(cyclades, threads=workers, **options)
    for order in (0, 1):
        for (w, _), sent in single("CYCLADES", workers, order=order):
            assert w.tobytes() == wanted.tobytes()
            assert sent == 0


def test_components_are_those_of_the_picture():
    features = [[0], [1], [0], [2], [2, 3], [3]]
    visits = [(each, None, None) for each in features]
    assert hogwild.components(visits, range(6), 2) == [[3, 4, 5], [0, 1, 2]]
    assert hogwild.components(visits, range(3, 5), 2) == [[3, 4], []]


@pytest.mark.parametrize("earlier", [lambda t: t - 1, lambda t: t // 2 - 1])
def test_a_component_of_any_length_is_found(earlier):
    visits = [((t, earlier(t)), None, None) for t in range(1100)]
    assert hogwild.components(visits, range(1100), 2) == [[*range(1100)], []]


def test_messages_of_the_strategy_are_sums_of_losses_only():
    def losses(comm):
        for _ in range(EPOCHS):
            tree_allreduce(comm, np.zeros(2))

    wanted = [sent for _, sent in ran(losses, 2)]
    assert [sent for _, sent in modular(dml_hogwild, ranks=2)] == wanted


def changes(monkeypatch, policy, order, module=hogwild):
    """Return the weights, and the examples in the order of their changes."""
    seen, change = [], module.change

    def seeing(memory, features, delta):
        seen.append(next(e for e in VISITS if e[0] is features))
        change(memory, features, delta)

    monkeypatch.setattr(module, "change", seeing)
    found = single(policy, 3, VISITS, module, order)
    monkeypatch.undo()
    return found[0][0][0], seen


def in_order(visits):
    serial = SimpleNamespace(w=np.zeros(WEIGHTS), hits=np.zeros(WEIGHTS))
    for example in visits:
        hogwild.change(serial, *hogwild.step(serial, example))
    return serial.w


def late(monkeypatch, policy, orders=(0, 1, 2)):
    """Return in how many runs gradients are of weights that others have changed."""
    runs = [changes(monkeypatch, policy, order) for order in orders]
    return sum(w.tobytes() != in_order(seen).tobytes() for w, seen in runs)


def test_only_the_gradients_of_locked_workers_are_never_late(monkeypatch):
    assert late(monkeypatch, "locked") == 0
    assert late(monkeypatch, "lock-free") > 0
    assert late(monkeypatch, "round robin") == 3


def test_round_robin_changes_in_the_order_of_examples(monkeypatch):
    for order in (0, 1, 2):
        _, seen = changes(monkeypatch, "round robin", order)
        assert all(one is other for one, other in zip(seen, VISITS, strict=True))


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("policy", hogwild.POLICIES)
def test_no_change_is_lost_on_virtual_ranks(policy, workers):
    visits = [(f, np.round(x) / 2**20, y) for f, x, y in VISITS]  # exact sums
    (w, hits), _ = single(policy, workers, visits)[0]
    assert w.tolist() == (in_order(visits) + 0.0).tolist()
    assert hits.sum() == 3 * len(visits)


def test_main_prints_a_line_for_each_policy(capsys, monkeypatch):
    monkeypatch.setattr(hogwild, "allocate_shared", Window)
    ran(hogwild.main, 3)
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in lines[1:]] == [
        ["0", "False"],
        ["0", "False"],
        ["0", "True"],
    ]


@pytest.mark.parametrize(
    "policy, old, new",
    [
        ("locked", "ticket + 1", "ticket + 1\n    memory.w[0] += 1"),
        ("round robin", "while memory.turn[0] != t:", "while memory.turn[0] + 1 < t:"),
        ("CYCLADES", "if features.isdisjoint(theirs):", "if True:"),
    ],
)
def test_a_broken_line_changes_the_weights(policy, old, new, tmp_path):
    mutant = broken(tmp_path, hogwild, (old, new))
    found = single(policy, 3, module=mutant)[0][0][0]
    assert found.tobytes() != single(policy, 3)[0][0][0].tobytes()
