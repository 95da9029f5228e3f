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
    "allreduce.rows": (
        {"simulate": 0},
        {},
        [
            {"registered": registered, "algorithm": name, "bytes": nbytes, "p": 2}
            | {"seconds": seconds}
            for registered, name, nbytes, seconds in [
                (True, "ring", 4096, 2e-3),
                (True, "star", 4096, 1e-3),
                (True, "auto", 4096, 5e-4),
                (True, "ring", 1 << 22, 1e-2),
                (True, "star", 1 << 22, None),
                (False, "tree", 4096, 1e-6),
            ]
        ],
        "Fastest on 2 ranks: star for 4 KB (1 ms), ring for 4 MB (10 ms).",
    ),
    "topology.report": (
        {},
        {},
        [
            {"table": "race", "p": p, "bytes": nbytes, "network": network, "best": best}
            for p, nbytes, network, best in [
                (64, 1 << 20, "torus", "star"),
                (4096, 1 << 20, "torus", "ring"),
                (4096, 1 << 26, "torus", "swing"),
                (4096, 1 << 20, "fat tree", "ring"),
                (4096, 1 << 26, "fat tree", "ring"),
            ]
        ],
        "Fastest of 4,096 ranks, for 1 MB ring on torus, fat tree; for 64 MB swing on "
        "torus; ring on fat tree.",
    ),
    "stragglers.report": (
        {},
        {},
        [
            {"law": "pareto", "workers": p, "barrier": name, "maxplus": seconds}
            for p, name, seconds in [
                (8, "bsp", 1.5),
                (64, "bsp", 2.0),
                (64, "ssp", 1.25),
                (64, "none", None),
            ]
        ],
        "Seconds of a step of 64 workers with delay pareto: bsp 2 s, ssp 1.25 s.",
    ),
    "kfac.report": (
        {},
        {},
        [
            {"table": "fraction", "ranks": ranks, "sha256": "a", "state_bytes": nbytes}
            for ranks, nbytes in [(2, 50), (4, 10), (4, 30)]
        ]
        + [
            {"table": "training", "name": name, "updates_0.1": first}
            | {"updates_0.03": second}
            for name, first, second in [("kfac", 20, 40), ("kfac", 10, None)]
            + [("adam", 50, None)]
        ],
        "All fractions on all ranks have equal bits; on 4 ranks the largest fraction "
        "stores 3 times the bytes of the smallest; updates to loss 0.1: kfac 10, adam "
        "50; updates to loss 0.03: kfac 40, adam never.",
    ),
    "offload.report": (
        {},
        {},
        [{"table": "trained", "sha256": "a", "fraction": part} for part in (0.5, 1.0)]
        + [
            {"table": "virtual", "method": method, "network": "gpt", "fraction": part}
            | {"throughput": 0.9 * part}
            for method in ("belady", "lru")
            for part in (0.5, 1.0)
        ],
        "The 2 trainings in 50% to 100% of the memory have equal bits; gpt activations "
        "have 45% of the speed in 50% of the memory.",
    ),
    "compression.report": (
        {},
        {
            f"{name}_{key}": value
            for name, numbers in {
                "exact": (1.0, 0.96, 4e-4, None),
                "terngrad": (16.0, 0.955, 5e-4, 1.0),
                "sign": (32.0, 0.8, 1e-4, 9.0),
            }.items()
            for key, value in zip(
                ("ratio", "accuracy", "step_seconds", "break_even_gbps"),
                numbers,
                strict=True,
            )
        },
        [],
        "At the accuracy of the exact reducer, 0.96, terngrad sends 16 times fewer "
        "bytes (accuracy 0.955). Here an exact update takes 0.400 ms, the fastest of "
        "these codes, terngrad, 0.500 ms.",
    ),
    "compression.crossovers": (
        {},
        {"paying": 3, "setups": 8, "most_gbps": 20.0},
        [
            {"table": "crossover", "examples": examples, "ranks": [2, 8]}
            | {"gbps": [1.0, 100.0], "paying": paying}
            for examples, paying in [(0, [2, 2]), (1, [2, 1]), (64, [0, 0])]
        ],
        "A code makes updates faster in 3 of 8 setups (38%), and in 1 of those 4 with "
        "at least 10 Gb/s. Without a gradient, no code saves time above 20 Gb/s.",
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
