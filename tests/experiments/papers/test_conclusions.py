"""The last sentence of a command is computed from the rows of its run."""

from importlib import import_module
from pathlib import Path

import pytest

from dml.runs.results import Run

CASES = {
    "server.downpour_report": (
        {"simulate": 20, "target": 0.95},
        {},
        [
            {"strategy": "a", "accuracy": 0.96, "seconds_to_target": 12.0},
            {"strategy": "a", "accuracy": 0.97, "seconds_to_target": 9.0},
            {"strategy": "b", "accuracy": 0.9, "seconds_to_target": None},
        ],
        "Time to accuracy 0.95: a: 9 virtual s, b: never (at most 90.0%).",
    ),
    "server.consistency_report": (
        {"simulate": 4},
        {},
        [
            {"delay": "constant:1", "consistency": "bsp", "seconds_to_target": 56.0},
            {"delay": "constant:1", "consistency": "ssp:3", "seconds_to_target": 44.0},
            {"delay": "constant:2", "consistency": "bsp", "seconds_to_target": None},
        ],
        "With delay constant:1 ssp:3 reaches the target first, after 44 virtual s "
        "(bsp 56); with delay constant:2 no consistency reaches the target.",
    ),
    "server.deaths": (
        {"consistency": "bsp"},
        {"deaths": 3, "lost_updates": 0, "repeated_updates": 1, "virtual": 1}
        | {"recovery_seconds": 1e-4, "sha256": "a", "sha256_without_deaths": "b"},
        [],
        "3 ranks died: 0 updates of living workers were lost, 1 applied twice; workers "
        "continued after at most 0.0001 virtual s; the bits are NOT equal to those "
        "without deaths.",
    ),
    "shared_memory.hogwild_report": (
        {},
        {},
        [
            {"kind": "race", "problem": "svm", "strategy": name, "workers": workers}
            | {"speedup": speedup}
            for name, workers, speedup in [
                ("locked", 2, 0.8),
                ("hogwild", 1, 1.0),
                ("hogwild", 2, 1.9),
            ]
        ],
        "Speed-ups of 2 workers over serial: hogwild 1.90, locked 0.80 on svm.",
    ),
    "gradient_coding.report": (
        {},
        {},
        [
            {"tail": "load", "workers": 30, "scheme": name, "seconds_to_auc": seconds}
            for name, seconds in [("waiting", 9.0), ("cyclic", 5.0), ("late", None)]
        ],
        "With tail load cyclic reaches the AUC first on 30 workers, after 5 virtual s "
        "(waiting 9).",
    ),
    "scaling.report": (
        {},
        {},
        [
            {"table": "prediction", "p": p, "overlap": overlap, "best": "ring"}
            | {"speedup": p / 2, "efficiency": 0.5, "bottleneck": "latency"}
            for overlap in (False, True)
            for p in (512, 1000)
        ],
        "Predicted speed-up of 1,000 workers: 500 without overlap (50% of linear, by "
        "ring, limited by latency), 500 with overlap (50% of linear, by ring, limited "
        "by latency).",
    ),
    "a3c.report": (
        {},
        {},
        [{"workers": 1, "seconds": 59.0}, {"workers": 2, "seconds": None}],
        "Virtual seconds to the return, by workers: 1 in 59, 2 never.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_conclusion_states_what_the_rows_have(name):
    chosen, summary, rows, expected = CASES[name]
    run = Run(Path("run"), chosen, {}, summary, rows)
    assert import_module(f"studies.{name}").conclude(run) == expected
