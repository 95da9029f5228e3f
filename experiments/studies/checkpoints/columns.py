"""Columns and titles of the tables of checkpoints.py."""

from dml.runs.writers import Columns, scaled_cell

COLUMNS: dict[str, Columns] = {
    "formulas": {
        "formula": (8, "{formula}"),
        "interval s": (10, "{interval:.2f}"),
        "time/work": (9, "{expected:.5f}"),
        "above best": (10, "{above_best:.3%}"),
    },
    "intervals": {
        "x best": (6, "{factor:g}"),
        "interval s": (10, "{interval:.1f}"),
        "formula": (8, "{expected:.4f}"),
        "runs": (8, "{sampled:.4f}"),
        "error": (7, "{sampled_error:+.2%}"),
        "virtual": (8, "{virtual:.4f}"),
        "error ": (7, "{virtual_error:+.2%}"),
    },
    "recovery": {
        "placement": (9, "{placement}"),
        "failures": (8, "{failures}"),
        "probability": (11, "{probability:.4f}"),
        "Gemini": (8, "{formula:.4f}"),
        "all sets": (8, "{enumerated:.4f}"),
        "random sets": (11, "{sampled:.4f}"),
    },
    "overhead": {
        "write": (11, "{mode}"),
        "MB": (6, "{megabytes:.1f}"),
        "step ms": (8, scaled_cell("step", 1e3, ".2f")),
        "stall ms": (8, scaled_cell("stall", 1e3, ".1f")),
        "added ms": (8, scaled_cell("added", 1e3, ".0f")),
        "interval s": (10, "{interval:.2f}"),
        "overhead": (8, "{overhead:.1%}"),
        "± ": (5, "{error:.1%}"),
        "write ms": (8, scaled_cell("write", 1e3, ".0f")),
        "cost ms": (8, scaled_cell("estimated", 1e3, ".0f")),
        "processor ms": (12, scaled_cell("added_processor", 1e3, ".0f")),
    },
}
TITLES = {
    "formulas": "Interval of checkpoints by formula; expected time per second of work",
    "intervals": "Time per second of work: formula, random runs, virtual cluster",
    "recovery": "Probability that all states survive: formulas and sets of machines",
    "overhead": "Overhead of saves on this machine, at the interval of the rule",
}
