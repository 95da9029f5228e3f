"""The tables of `scaling.py`: rows in, columns under a title out."""

import scaling_bert
from scaling_bert import PUBLISHED
from scaling_model import BACKWARD, BY_HAND, Training

from dml.metrics.writers import Columns, scaled
from dml.wire.cost import Rates

COLUMNS: dict[str, Columns] = {
    "prediction": {
        "p": (5, "{p}"),
        "overlap": (7, lambda row: "yes" if row["overlap"] else "no"),
        "gradient ms": (11, scaled("gradient_seconds", 1e3, ".3f")),
        "step ms": (9, scaled("step_seconds", 1e3, ".3f")),
        "best": (16, "{best}"),
        "speed-up": (8, "{speedup:.4g}"),
        "of linear": (9, "{efficiency:.1%}"),
        "binds": (9, "{binds}"),
        **{
            name: (max(6, len(name)), f"{{{name}_speedup:.4g}}")
            for name in (*BY_HAND, "native")
        },
    },
    "measured": {
        "algorithm": (16, "{algorithm}"),
        "gradient ms": (11, scaled("gradient_seconds", 1e3, ".3f")),
        "wire ms": (8, scaled("wire_seconds", 1e3, ".3f")),
        "predicted ms": (12, scaled("predicted_seconds", 1e3, ".3f")),
        "measured ms": (11, scaled("seconds", 1e3, ".3f")),
        "pred/meas": (9, lambda r: f"{r['predicted_seconds'] / r['seconds']:.3f}"),
    },
    "bert": {
        "job": (22, "{job}"),
        **{f"{size} V100": (9, f"{{minutes_{size}:.1f}} min") for size in PUBLISHED},
        **{f"eff. {n}": (10, f"{{efficiency_{n}:.1%}}") for n in (1024, 1472)},
        **{f"error {n}": (10, f"{{error_{n}:+.1%}}") for n in (1024, 1472)},
    },
}


def titles(training: Training, rates: Rates) -> dict[str, str]:
    """Say of each table what it assumes."""
    kind = "over all workers" if training.strong else "a worker"
    return {
        "prediction": f"predicted speed-up: {training.parameters:,} parameters of "
        f"{training.itemsize} bytes, {training.batch} examples {kind}, a gradient of "
        f"{training.gradient(1) * 1e3:.3g} ms alone;\nalpha {rates.alpha:.3g} s a "
        f"message, beta {rates.beta:.3g} s and gamma {rates.gamma:.3g} s a byte, "
        f"{training.host} workers a host; overlap: with the backward pass, "
        f"{BACKWARD:.0%} of a gradient",
        "measured": "steps on the ranks that are here, gradient and all-reduce",
        "bert": f"BERT-large by V100, efficiency from {min(PUBLISHED)} on; "
        f"{scaling_bert.against_one()}\n{scaling_bert.ASSUMED}",
    }
