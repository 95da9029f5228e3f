"""The tables of `memory.py`: rows in, columns out."""

from collections.abc import Callable

from dml.metrics.writers import Columns, Row


def megabytes(key: str) -> Callable[[Row], str]:
    return lambda row: f"{row[key] / 1e6:.2f}"


DEVICES: Columns = {
    "devices": (7, "{devices:d}"),
    "mesh": (27, "{mesh}"),
    "how": (21, "{how}"),
    "b x M": (7, "{microbatch} x {microbatches}"),
}
HELD: Columns = {
    "params": (7, "{parameters_gb:.3g}"),
    "grads": (7, "{gradients_gb:.3g}"),
    "state": (7, "{state_gb:.3g}"),
    "activ.": (7, "{activations_gb:.3g}"),
    "GB held": (7, "{gb:.4g}"),
}
COLUMNS: dict[str, Columns] = {
    "lecture": {
        "model": (10, "{model}"),
        "published B": (11, "{published_billions:g}"),
        "counted B": (9, "{billions:.3f}"),
        "published GB": (12, "{published_gigabytes:g}"),
        "16 x published": (14, "{lecture_gigabytes:g}"),
        "16 x counted": (12, "{gigabytes:.2f}"),
        "off": (6, "{off:+.1%}"),
        " verdict": (0, " {verdict}"),
    },
    "holding": {
        "model": (10, "{model}"),
        "of GB": (5, "{device_gb:d}"),
        **DEVICES,
        "GB held": (7, "{gb:.4g}"),
        "s a step": (8, "{seconds:.3g}"),
    },
    "proposals": {
        **DEVICES,
        **HELD,
        "s a step": (8, "{seconds:.3g}"),
        "tokens/s": (10, "{tokens_per_second:,.0f}"),
        "compute": (7, "{compute_share:.1%}"),
        "binds": (14, "{binds} {binds_share:.1%}"),
    },
    "stages": {
        "stage": (5, "{stage:d}"),
        "blocks": (6, "{blocks:d}"),
        "alive": (5, "{alive:d}"),
        "parameters a device": (19, "{parameters:,}"),
        **HELD,
    },
    "compiled": {
        "case": (20, "{case}"),
        "batch": (5, "{batch:d}"),
        "length": (6, "{length:d}"),
        "arguments": (9, megabytes("arguments")),
        "pred/comp": (9, "{arguments_ratio:.3f}"),
        "output": (7, megabytes("output")),
        "temporary": (9, megabytes("temporary")),
        "predicted": (9, megabytes("expected_temporary")),
        "pred/comp ": (9, "{temporary_ratio:.3f}"),
        "s": (4, "{compile_seconds:.1f}"),
    },
}
TITLES = {
    "lecture": "the lecture's table, 16 bytes a parameter: 2 + 2 + 12 of mixed Adam",
    "holding": "fewest devices that hold a model, and the fastest plan for so many",
    "proposals": "fastest meshes by number of devices; GB on the fullest device",
    "stages": "the cheapest of them by stages: microbatches alive, and GB on a device",
}
