"""The tables of `memory.py`: rows in, columns out."""

from collections.abc import Callable

from dml.metrics.writers import Row

Column = tuple[int, Callable[[Row], str]]


def number(key: str, form: str, width: int = 9) -> Column:
    return width, lambda row: format(row[key], form)


def word(key: str, width: int) -> Column:
    return width, lambda row: row[key]


def megabytes(key: str, width: int) -> Column:
    return width, lambda row: f"{row[key] / 1e6:.2f}"


DEVICES: dict[str, Column] = {
    "devices": number("devices", "d", 7),
    "mesh": word("mesh", 27),
    "how": word("how", 21),
    "b x M": (7, lambda row: f"{row['microbatch']} x {row['microbatches']}"),
}
HELD: dict[str, Column] = {
    "params": number("parameters_gb", ".3g", 7),
    "grads": number("gradients_gb", ".3g", 7),
    "state": number("state_gb", ".3g", 7),
    "activ.": number("activations_gb", ".3g", 7),
    "GB held": number("gb", ".4g", 7),
}
COLUMNS: dict[str, dict[str, Column]] = {
    "lecture": {
        "model": word("model", 10),
        "published B": number("published_billions", "g", 11),
        "counted B": number("billions", ".3f", 9),
        "published GB": number("published_gigabytes", "g", 12),
        "16 x published": number("lecture_gigabytes", "g", 14),
        "16 x counted": number("gigabytes", ".2f", 12),
        "off": number("off", "+.1%", 6),
        " verdict": (0, lambda row: f" {row['verdict']}"),
    },
    "holding": {
        "model": word("model", 10),
        "of GB": number("device_gb", "d", 5),
        **DEVICES,
        "GB held": number("gb", ".4g", 7),
        "s a step": number("seconds", ".3g", 8),
    },
    "proposals": {
        **DEVICES,
        **HELD,
        "s a step": number("seconds", ".3g", 8),
        "tokens/s": number("tokens_per_second", ",.0f", 10),
        "compute": number("compute_share", ".1%", 7),
        "binds": (14, lambda row: f"{row['binds']} {row['binds_share']:.1%}"),
    },
    "stages": {
        "stage": number("stage", "d", 5),
        "blocks": number("blocks", "d", 6),
        "alive": number("alive", "d", 5),
        "parameters a device": number("parameters", ",", 19),
        **HELD,
    },
    "compiled": {
        "case": word("case", 20),
        "batch": number("batch", "d", 5),
        "length": number("length", "d", 6),
        "arguments": megabytes("arguments", 9),
        "pred/comp": number("arguments_ratio", ".3f", 9),
        "output": megabytes("output", 7),
        "temporary": megabytes("temporary", 9),
        "predicted": megabytes("expected_temporary", 9),
        "pred/comp ": number("temporary_ratio", ".3f", 9),
        "s": number("compile_seconds", ".1f", 4),
    },
}
TITLES = {
    "lecture": "the lecture's table, 16 bytes a parameter: 2 + 2 + 12 of mixed Adam",
    "holding": "fewest devices that hold a model, and the fastest plan for so many",
    "proposals": "fastest meshes by number of devices; GB on the fullest device",
    "stages": "the cheapest of them by stages: microbatches alive, and GB on a device",
    "compiled": "as compiled: a step of {compiled}, MB; arguments: params and state",
}
