"""Seconds of a tree and scores beside LightGBM and XGBoost, with equal parameters.

    rank 0     dml TURN trees │ LightGBM │ quantised │ XGBoost │ dml │ LightGBM │ …
    others     dml            │ asleep                         │ dml │

LightGBM and XGBoost have all rows, and a thread for each rank of dml. Turns alternate,
so that a ratio compares neighbours in time. Processor seconds are those of all ranks or
threads. Libraries that are not installed are left out.
"""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from dml.boosting import Data, Settings, train
from dml.data.tables.named import NamedTable
from dml.runs.results import Run
from dml.runs.writers import Row
from dml.types import BadInput, CountedComm
from dml.wire.collectives import allreduce
from dml.wire.comm import first_of_all
from dml.wire.comm.metered import uncounted
from studies.boosting.report import score

TURN = 5  # rounds
LIGHTGBM = {"squared": "regression", "logistic": "binary", "softmax": "multiclass"}
XGBOOST = {
    "squared": "reg:squarederror",
    "logistic": "binary:logistic",
    "softmax": "multi:softprob",
}
COLUMNS = {
    "peer": (20, "{peer}"),
    "workers": (7, "{workers}"),
    "ms a round": (10, lambda row: f"{1e3 * row['seconds']:.1f}"),
    "CPU ms": (8, lambda row: f"{1e3 * row['cpu_seconds']:.1f}"),
    "ratio": (6, "{ratio:.2f}"),
    "CPU ratio": (9, "{cpu_ratio:.2f}"),
    "score": (9, "{score:.5f}"),
}


class Peer(NamedTuple):
    """A model that grows: `grow` adds a round, `predict` returns means or shares."""

    grow: Callable[[], Any]
    predict: Callable[[np.ndarray], np.ndarray]


def fair(given: Settings) -> Settings:
    """Return settings that all libraries have: no smallest number of rows."""
    return replace(given, min_rows=0, min_hessian=1.0, categories=())


def _lightgbm(
    training: NamedTable, given: Settings, threads: int, quantised: bool
) -> Peer:
    import lightgbm as library

    options = {
        "objective": LIGHTGBM[given.loss],
        "num_class": given.classes if given.loss == "softmax" else 1,
        "learning_rate": given.rate,
        "num_leaves": given.leaves,
        "max_depth": given.depth or -1,
        "max_bin": given.bins,
        "lambda_l2": given.l2,
        "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": given.min_hessian,
        "use_quantized_grad": quantised,
        "force_row_wise": True,
        "num_threads": threads,
        "verbosity": -1,
    }
    rows = library.Dataset(training.x, training.y, params=options)
    booster = library.Booster(options, rows)
    return Peer(booster.update, booster.predict)


def _xgboost(training: NamedTable, given: Settings, threads: int) -> Peer:
    import xgboost as library

    bins = {"max_bin": given.bins + 1, "nthread": threads}
    options = {
        "objective": XGBOOST[given.loss],
        "learning_rate": given.rate,
        "reg_lambda": given.l2,
        "min_child_weight": given.min_hessian,
        "max_leaves": given.leaves,
        "max_depth": given.depth,
        "grow_policy": "lossguide",
        "tree_method": "hist",
        **bins,
    } | ({"num_class": given.classes} if given.loss == "softmax" else {})
    rows = library.QuantileDMatrix(training.x, training.y, **bins)
    booster = library.Booster(options, [rows])

    def grow() -> None:
        booster.update(rows, booster.num_boosted_rounds())

    return Peer(grow, lambda x: booster.predict(library.DMatrix(x)))


def installed(training: NamedTable, given: Settings, threads: int) -> dict[str, Peer]:
    """Return the models of the installed libraries, by name."""
    peers = {}
    if importlib.util.find_spec("lightgbm"):
        for name, quantised in (("LightGBM", False), ("LightGBM quantised", True)):
            peers[name] = _lightgbm(training, given, threads, quantised)
    if importlib.util.find_spec("xgboost"):
        peers["XGBoost"] = _xgboost(training, given, threads)
    return peers


class _Clock:
    """Seconds and processor seconds of turns, by name."""

    def __init__(self) -> None:
        self.turns: dict[str, list[tuple[float, float]]] = {}
        self.start()

    def start(self) -> None:
        self.begin = time.perf_counter(), time.process_time()

    def stop(self, name: str) -> None:
        end = time.perf_counter(), time.process_time()
        spent = end[0] - self.begin[0], end[1] - self.begin[1]
        self.turns.setdefault(name, []).append((spent[0] / TURN, spent[1] / TURN))


def compare(
    comm: CountedComm,
    own: Data,
    training: NamedTable,
    held_out: NamedTable,
    given: Settings,
) -> list[Row]:
    """Train in turns; return a row for dml and each library; collective.

    Args:
      comm: Communicator of real ranks.
      own: Block of the rank.
      training: All rows.
      held_out: Rows whose predictions are scored by `report.score`.
      given: Settings; the rounds are a multiple of TURN. The first turn is not timed.
    """
    if comm.platform.virtual or given.rounds % TURN or given.rounds < 2 * TURN:
        raise BadInput(
            f"expected real ranks and a multiple of {TURN} rounds from {2 * TURN} on, "
            f"with --peers, got {given.rounds} rounds; correct --simulate or --rounds"
        )
    peers = installed(training, given, comm.size) if comm.rank == 0 else {}
    clock = _Clock()

    def turns() -> None:
        if comm.rank == 0:
            for name, peer in peers.items():
                clock.start()
                for _ in range(TURN):
                    peer.grow()
                clock.stop(name)

    def note(round_: int, _: dict[str, float]) -> None:
        if round_ % TURN == TURN - 1:
            clock.stop("dml")
            first_of_all(comm, turns)
            clock.start()

    model = train(comm, own, given, report=note).model
    cpu = np.array([cpu for _, cpu in clock.turns["dml"]])
    allreduce(uncounted(comm), cpu, np.add, "ring")
    if comm.rank:
        return []
    clock.turns["dml"] = [
        (wall, each)
        for (wall, _), each in zip(clock.turns["dml"], cpu.tolist(), strict=True)
    ]
    scores = {"dml": score(model.predictions(held_out.x), held_out)}
    for name, peer in peers.items():
        scores[name] = score(np.asarray(peer.predict(held_out.x)), held_out)
    return [row(clock.turns, name, scores[name], comm.size) for name in scores]


def row(
    turns: dict[str, list[tuple[float, float]]], name: str, score: float, workers: int
) -> Row:
    """Return medians of a library, and of its ratios to dml in the same turns."""
    timed, ours = np.array(turns[name][1:]), np.array(turns["dml"][1:])
    seconds, cpu = (median(values) for values in timed.T.tolist())
    ratio, cpu_ratio = (median(values) for values in (timed / ours).T.tolist())
    times = {"seconds": seconds, "cpu_seconds": cpu}
    ratios = {"ratio": ratio, "cpu_ratio": cpu_ratio}
    return {"peer": name, "workers": workers, **times, **ratios, "score": score}


def conclude(run: Run) -> str:
    """Return the ratios in a sentence."""
    ours, *others = run.rows
    took = f"A round of dml takes {1e3 * ours['seconds']:.4g} ms on {ours['workers']} "
    if not others:
        return (
            f"{took}ranks. LightGBM and XGBoost are not installed; "
            "pip install 'dml-methods[peers]'."
        )
    ratios = [f"{row['peer']} {row['ratio']:.2f}" for row in others]
    return f"{took}ranks. Times as long on as many threads: {', '.join(ratios)}."
