"""Linear models beside scikit-learn, liblinear, Vowpal Wabbit and celer, in turns.

    logistic, L2   mean log(1 + e^(-y⟨x, w⟩)) + ½ λ ‖w‖²     λ = 1/n
    squared, L1    ½ mean (y - ⟨x, w⟩)² + α ‖w‖₁             α = 0.1 max |Xᵀy|/n

    rank 0     dml L-BFGS │ dml ProxCoCoA+ │ scikit-learn │ liblinear │ … │ dml │ …
    others     dml        │ dml            │ asleep                       │ dml │

All methods have the same sparse rows, no intercept, and one thread; dml has a rank for
each process. Libraries that are not installed are left out. Vowpal Wabbit reads a text
file, which is part of its time.
"""

import atexit
import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dml.metrics.timer import Timer
from dml.models.linear.problem import linear
from dml.runs.writers import Row
from dml.strategies.linear.lbfgs import lbfgs
from dml.strategies.linear.prox_cocoa import prox_cocoa
from dml.types import CountedComm
from dml.wire.collectives import ALLREDUCE, allreduce
from dml.wire.comm import first_of_all
from dml.wire.comm.metered import uncounted
from studies.dimensions.data import sparse_rows

L2, L1 = "logistic, L2", "squared, L1"
TURNS, MOST = 3, 2000  # repetitions; iterations of dml
FLAT = 1e-9  # relative decrease of the objective at which dml ends
TOLERANCE = 1e-8  # of the libraries
ALPHA = 0.1  # α over the least α with which all weights are zero
WEIGHTS = 100  # that the targets depend on

Fit = Callable[[], np.ndarray]


class Data(NamedTuple):
    """Sparse rows, classes -1 and 1, numbers, and the weights λ and α of the norms."""

    x: Any
    classes: np.ndarray
    numbers: np.ndarray
    l2: float
    l1: float

    def objective(self, kind: str, w: np.ndarray) -> float:
        """Return the objective of weights in float64."""
        margins, w = self.x @ w, np.asarray(w, float)
        if kind == L2:
            losses = np.logaddexp(0, -self.classes * margins)
            return float(losses.mean() + 0.5 * self.l2 * (w @ w))
        squares = (self.numbers - margins) ** 2
        return float(0.5 * squares.mean() + self.l1 * np.abs(w).sum())


def data(examples: int, features: int, nonzeros: int, seed: int) -> Data:
    """Return features, and targets that depend on some of them with noise."""
    x = sparse_rows(examples, features, nonzeros, seed).astype(float)
    draws = np.random.default_rng([seed, 1])
    w = np.zeros(features)
    w[draws.choice(features, min(WEIGHTS, features), replace=False)] = 1
    dense = x @ draws.standard_normal(features)
    numbers = x @ w + 0.1 * draws.standard_normal(examples)
    noisy = dense + 0.5 * dense.std() * draws.standard_normal(examples)
    largest = float(np.abs(x.T @ numbers).max()) / examples
    return Data(
        x, np.where(noisy > 0, 1.0, -1.0), numbers, 1 / examples, ALPHA * largest
    )


def scikit_learn(kind: str, given: Data) -> Fit:
    from sklearn import linear_model

    same = {"fit_intercept": False, "tol": TOLERANCE, "max_iter": 100_000}
    if kind == L2:
        scale = 1 / (given.l2 * len(given.classes))
        model = linear_model.LogisticRegression(C=scale, **same)
        return lambda: model.fit(given.x, given.classes).coef_.ravel()
    x = given.x.tocsc()
    return lambda: linear_model.Lasso(given.l1, **same).fit(x, given.numbers).coef_


def liblinear(kind: str, given: Data) -> Fit:
    from liblinear.liblinearutil import parameter, problem, train

    scale = 1 / (given.l2 * len(given.classes))
    options = f"-s 0 -c {scale:.17g} -e {TOLERANCE} -B -1 -q"

    def fit() -> np.ndarray:
        model = train(problem(given.classes, given.x), parameter(options))
        weights = np.array(model.w[: given.x.shape[1]])
        return weights * model.get_labels()[0]

    return fit


def vowpal_wabbit(kind: str, given: Data) -> Fit:
    from vowpalwabbit import Workspace

    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    text, count = Path(folder, "rows.txt"), given.x.shape[1]
    starts = given.x.indptr.tolist()
    with text.open("w") as lines:
        for label, (begin, end) in zip(given.classes, pairwise(starts), strict=True):
            places = given.x.indices[begin:end], given.x.data[begin:end]
            cells = (f"{c}:{value:.9g}" for c, value in zip(*places, strict=True))
            lines.write(f"{label:g} | {' '.join(cells)}\n")
    options = (
        f"-d {text} --cache_file {folder}/cache -k --quiet --bfgs --passes=1000 "
        f"--loss_function=logistic --noconstant --holdout_off --predict_only_model "
        f"--l2={given.l2 * len(given.classes):.17g} --termination={TOLERANCE} "
        f"-b {max(18, count.bit_length())} -f {folder}/model"
    )

    def fit() -> np.ndarray:
        Workspace(options).finish()
        model = f"-i {folder}/model --quiet -t --predict_only_model --noconstant"
        weights = Workspace(model)
        return np.array([weights.get_weight(c) for c in range(count)])

    return fit


def celer(kind: str, given: Data) -> Fit:
    from celer import Lasso

    x = given.x.tocsc()
    options = {"fit_intercept": False, "tol": TOLERANCE, "max_iter": 1000}
    return lambda: Lasso(alpha=given.l1, **options).fit(x, given.numbers).coef_


LIBRARIES: dict[tuple[str, str], tuple[str, Callable[[str, Data], Fit]]] = {
    (L2, "scikit-learn"): ("sklearn", scikit_learn),
    (L2, "liblinear"): ("liblinear", liblinear),
    (L2, "Vowpal Wabbit"): ("vowpalwabbit", vowpal_wabbit),
    (L1, "scikit-learn"): ("sklearn", scikit_learn),
    (L1, "celer"): ("celer", celer),
}


def installed(given: Data) -> dict[tuple[str, str], Fit]:
    """Return the fits of the installed libraries, by problem and name."""
    return {
        (kind, name): make(kind, given)
        for (kind, name), (module, make) in LIBRARIES.items()
        if importlib.util.find_spec(module)
    }


def fitted(comm: CountedComm, kind: str, given: Data, most: int) -> Any:
    """Return the weights by dml on rank 0, None elsewhere; collective."""
    strategy, own = (lbfgs, {}) if kind == L2 else (prox_cocoa, {"l1": given.l1})
    targets, loss, l2 = given.numbers, "squared", 0.0
    if kind == L2:
        targets, loss, l2 = given.classes, "logistic", given.l2
    problem, before = linear(given.x, targets, loss, l2), np.inf
    options = {"comm": comm, "timer": Timer(comm.Wtime)} | own
    sums = ALLREDUCE["halving_doubling"]
    for step in strategy(problem, range(most), None, allreduce=sums, **options):
        now = step.measures["objective"]
        if step.number == most or before - now <= FLAT * abs(now):
            return step.params()
        before = now
    raise AssertionError("no step")


def rows(
    comm: CountedComm, examples: int, features: int, nonzeros: int, seed: int
) -> Iterator[Row]:
    """Yield a row for each problem and method on rank 0; collective."""
    given = data(examples, features, nonzeros, seed)
    fits: dict[tuple[str, str], Fit] = {
        (L2, "dml L-BFGS"): partial(fitted, comm, L2, given, MOST),
        (L1, "dml ProxCoCoA+"): partial(fitted, comm, L1, given, MOST),
    }
    for kind, _ in fits:
        fitted(comm, kind, given, 2)  # compiled
    others = installed(given) if comm.rank == 0 else {}
    timed: dict[tuple[str, str], list[tuple[float, float]]] = {}
    weights: dict[tuple[str, str], np.ndarray] = {}

    def run(key: tuple[str, str], fit: Fit) -> None:
        begin = time.perf_counter(), time.process_time()
        weights[key] = fit()
        end = time.perf_counter(), time.process_time()
        timed.setdefault(key, []).append((end[0] - begin[0], end[1] - begin[1]))

    for _ in range(TURNS):
        for key, fit in fits.items():
            run(key, fit)
        first_of_all(comm, lambda: [run(*each) for each in others.items()])
    for key in fits:  # processor seconds of all ranks
        cpu = np.array([spent for _, spent in timed[key]])
        allreduce(uncounted(comm), cpu, np.add, "ring")
        walls = [wall for wall, _ in timed[key]]
        timed[key] = list(zip(walls, cpu.tolist(), strict=True))
    if comm.rank:
        return
    found = {key: given.objective(key[0], w) for key, w in weights.items()}
    for kind, name in sorted(found, key=lambda key: key[0]):
        best = min(value for (other, _), value in found.items() if other == kind)
        seconds, cpu = map(median, zip(*timed[kind, name], strict=True))
        yield {
            "problem": kind,
            "peer": name,
            "workers": comm.size if (kind, name) in fits else 1,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "objective": found[kind, name],
            "gap": found[kind, name] / best - 1,
            "nonzeros": int(np.count_nonzero(weights[kind, name])),
        }
