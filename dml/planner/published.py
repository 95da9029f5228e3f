"""Published training runs: rows of a CSV file as `Runs` with their measured seconds.

Nothing depends on the name of a source. Where a row is silent, the rules are:

    attention    not fused if the model has no gates, zero <= 1, at most 2,048 tokens,
                 no float8, and the scores fit in memory; kernels are of 2023 or later
                 for gated models
    TPU          a replica has one micro batch; norms are sharded
    recompute    "full" and offloading: 1; selective, or a policy: attention only
    BERT         attention is not causal, 15 % of the tokens are predicted; examples of
                 512 tokens are half as long on average (Krell 2021), and padded to a
                 multiple of 64
    MPT          the loss is a fused kernel, the default of its trainer
    TFLOP/s      with recomputation if they agree with hfu, else without
    vocabulary   if the script does not say it: that of the model's family, or 32,000
"""

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dml.planner import runs as columns
from dml.planner.devices import Device, published_device
from dml.planner.runs import Mesh, Runs
from dml.planner.shapes import Shape
from dml.types import BadInput

Row = Mapping[str, str]
COLUMNS = (
    *("id", "complete", "model", "layers", "hidden", "heads", "kv_heads", "ffn"),
    *("gated", "vocab", "seq", "experts", "top_k", "global_batch", "micro_batch"),
    *("device", "devices", "devices_per_node", "precision", "tp", "pp", "dp", "cp"),
    *("ep", "zero", "interleave", "sequence_parallel", "recompute", "s_per_step"),
    *("tflops_per_device", "mfu_pct", "hfu_pct", "tokens_per_s_per_device"),
    *("seqs_per_s", "memory_gib", "status", "source", "notes"),
)
LONG_PAIRS = 512  # tokens of BERT's long pairs of sentences, at most
PADDING = 64  # tokens; a batch has examples whose lengths differ by less
NUMBERS = {  # required sizes, and their names in errors
    "layers": "layers",
    "hidden": "width",
    "heads": "heads",
    "ffn": "feed-forward width",
    "seq": "sequence",
    "global_batch": "batch",
    "micro_batch": "micro batch",
    "devices": "devices",
    "tp": "tensor",
    "pp": "stages",
    "dp": "data",
}
NUMBER = re.compile(r"\d+(?:\.\d+)?$")
OUT_OF_MEMORY = "out of memory"
VOCABULARIES = {  # of families of published models, the longest name first
    "baichuan2": 125696,
    "internlm": 103168,
    "mixtral": 32000,
    "mistral": 32000,
    "llama3": 128256,
    "falcon": 65024,
    "bloom": 250880,
    "llama": 32000,
    "bert": 30522,
    "gpt3": 50257,
    "qwen": 151936,
    "mpt": 50368,
    "yi": 64000,
}


class Published(NamedTuple):
    """One row, as predicted and as measured."""

    id: str
    source: str  # the repository
    kind: str  # the device's text
    device: str  # name in DEVICES
    precision: str  # the precision's text
    runs: Runs  # numbers
    seconds: float  # of a step; 0 if it ran out of memory
    memory: float  # bytes; 0 if unknown
    failed: bool  # whether it ran out of memory
    fitted: bool  # whether it is in the half that constants are fitted to
    row: Row


class Refused(NamedTuple):
    """A row that is not predicted, and why."""

    id: str
    source: str
    reason: str


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with the columns COLUMNS."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise BadInput(
                f"expected a file with the columns of published_runs.csv, got {path} "
                f"without {', '.join(missing)}; add them"
            )
        return [
            {name: text or "" for name, text in row.items() if name} for row in reader
        ]


def parse(rows: Sequence[Row]) -> tuple[list[Published], list[Refused]]:
    """Return the rows that can be predicted, and the others with a reason."""
    runs, refused = [], []
    for row in rows:
        made = parse_row(row)
        if isinstance(made, str):
            refused.append(Refused(row["id"], source(row), made))
        else:
            runs.append(made)
    return runs, refused


def source(row: Row) -> str:
    """Return the repository of a row."""
    return (row["source"].split() or ["not stated"])[0]


def digest(row: Row) -> str:
    """Return a hash of a row's text, without its number."""
    text = "|".join(value or "" for name, value in row.items() if name != "id")
    return hashlib.sha256(text.encode()).hexdigest()


def in_fitted_half(row: Row) -> bool:
    """Return whether a row is in the fitted half: the parity of its hash."""
    return int(digest(row), 16) % 2 == 0


def number(text: str) -> float | None:
    """Return a number, or None if the text is not one."""
    return float(text) if NUMBER.match(text or "") else None


def parse_row(row: Row) -> Published | str:
    """Return a row as `Published`, or the reason why it is refused."""
    failed = row["status"] == OUT_OF_MEMORY
    if row["complete"] != "1" and not failed:
        return "marked incomplete"
    for name, meaning in NUMBERS.items():
        if not number(row[name]):
            return f"no {meaning}: {row[name] or 'empty'}"
    if float(row["hidden"]) < float(row["heads"]):
        return f"a width of {row['hidden']} has no {row['heads']} heads"
    found = published_device(row["device"])
    if found is None:
        return f"unknown device: {row['device']}"
    name, device = found
    precision = precision_of(row["precision"])
    if precision is None:
        return f"unknown precision: {row['precision'] or 'empty'}"
    device = device._replace(node=int(number(row["devices_per_node"]) or device.node))
    tpu = name.startswith("tpu")
    stated = to_runs(row, device, precision, tpu)
    runs = to_runs(with_computed_tokens(row), device, precision, tpu)
    if runs.devices != float(row["devices"]):
        return f"{runs.devices:.0f} devices of the mesh are not {row['devices']}"
    seconds = 0.0 if failed else measured_seconds(row, stated)
    if not failed and seconds <= 0:
        return "no result"
    ideal = runs.flops * 3 / (3 + runs.remat) / runs.linear_peak / runs.devices
    if not failed and seconds < ideal:
        return "faster than the peak of its devices"
    gib = number(row["memory_gib"]) or 0.0
    return Published(
        row["id"],
        source(row),
        row["device"],
        name,
        row["precision"],
        runs,
        seconds,
        gib * (1e9 if "in GB" in row["notes"] else 2.0**30),
        failed,
        in_fitted_half(row),
        row,
    )


def with_computed_tokens(row: Row) -> Row:
    """Return a row with the average length of an example after padding."""
    if "BERT" not in row["model"] or float(row["seq"]) != LONG_PAIRS:
        return row
    return {**row, "seq": str(LONG_PAIRS // 2 + PADDING // 2)}


def precision_of(text: str) -> str | None:
    """Return the name in PRECISIONS of a published precision."""
    lower = text.lower()
    if any(name in lower for name in ("fp8", "float8", "int8", "fp4")):
        return "fp8_rowwise" if "rowwise" in lower else "fp8"
    for name in ("tf32", "fp16", "bf16"):
        if name in lower:
            return name
    return "fp32" if "fp32" in lower else None


def to_runs(row: Row, device: Device, precision: str, tpu: bool) -> Runs:
    """Return the sizes of a row."""
    shape, mesh = to_shape(row), to_mesh(row)
    batch = float(row["global_batch"])
    if tpu:
        mesh = mesh._replace(micro_batch=batch / mesh.data, sequence_parallel=True)
    short = shape.sequence <= 2048 and precision != "fp8"
    old = short and not shape.gated and mesh.zero <= 1
    tokens = mesh.micro_batch * shape.sequence / mesh.context
    scores = 5 * tokens * shape.sequence * shape.heads * shape.layers
    scores /= mesh.tensor * mesh.stage
    kept = not mesh.remat and not mesh.selective
    fits = not kept or scores < 0.4 * device.memory * 2**30
    made = columns.make(
        shape,
        mesh,
        device,
        batch,
        precision,
        fused=not (old and fits),
        modern=shape.gated,
    )
    both = "bf16" in row["precision"] and "fp32" in row["precision"]
    fused_loss = "MPT" in row["model"]
    return made._replace(gradients32=float(both), fused_loss=float(fused_loss))


def to_shape(row: Row) -> Shape:
    """Return the sizes of a row's model."""
    head = re.search(r"head_dim (\d+)", row["notes"])
    return Shape(
        layers=int(float(row["layers"])),
        width=int(float(row["hidden"])),
        heads=int(float(row["heads"])),
        feed_forward=int(float(row["ffn"])),
        vocabulary=vocabulary(row),
        sequence=int(float(row["seq"])),
        kv_heads=int(number(row["kv_heads"]) or 0),
        gated=row["gated"] == "1",
        experts=int(number(row["experts"]) or 1),
        top_k=int(number(row["top_k"]) or 1),
        head_width=int(head[1]) if head else 0,
        causal="BERT" not in row["model"],
    )


def vocabulary(row: Row) -> int:
    """Return the token types that a row states, or those of its model's family."""
    digits = re.findall(r"\d+", row["vocab"])
    if stated := max(map(int, digits), default=0):
        return stated
    name = re.sub(r"[ .-]", "", row["model"].lower())
    family = next((key for key in VOCABULARIES if name.startswith(key)), "llama")
    return VOCABULARIES[family]


def to_mesh(row: Row) -> Mesh:
    """Return the division of a row's step."""
    zero, text = row["zero"].lower(), row["recompute"].lower()
    level = 3 if zero.startswith("3") or "fsdp" in zero else 1
    if zero[:1] in ("0", "2"):
        level = int(zero[0])
    group = re.search(r"(?:over|fsdp) (\d+)", zero)
    layers = re.match(r"(\d+) layers of (\d+)", text)
    full = text.startswith("full") or "offload" in text
    names = ("selective", "minimal", "save_")
    unknown = text.startswith("none ") or "config" in text
    partial = any(name in text for name in names) or unknown
    return Mesh(
        data=int(float(row["dp"])),
        tensor=int(float(row["tp"])),
        stage=int(float(row["pp"])),
        context=int(number(row["cp"]) or 1),
        expert=int(number(row["ep"]) or 1),
        micro_batch=float(row["micro_batch"]),
        rounds=int(number(row["interleave"]) or 1),
        zero=level,
        zero_group=int(group[1]) if group else 0,
        sequence_parallel=row["sequence_parallel"] == "1",
        remat=int(layers[1]) / int(layers[2]) if layers else float(full),
        selective=float(partial and not full and not layers),
    )


def measured_seconds(row: Row, runs: Runs) -> float:
    """Return the measured seconds of a step, from the column that is most direct."""
    if seconds := number(row["s_per_step"]):
        return seconds
    if tokens := number(row["tokens_per_s_per_device"]):
        return float(runs.batch * runs.sequence / (tokens * runs.devices))
    if examples := number(row["seqs_per_s"]):
        return float(runs.batch / examples)
    mfu, hfu = number(row["mfu_pct"]), number(row["hfu_pct"])
    rate = (number(row["tflops_per_device"]) or 0) * 1e12
    if not rate:
        rate = (mfu or hfu or 0) / 100 * runs.peak
    if not rate:
        return 0.0
    again = hfu is not None and (mfu is None or mfu == hfu)
    # the sources count all scores of causal attention
    counted = runs._replace(causal=0.0, remat=runs.remat if again else 0.0)
    return float(counted.flops / (rate * runs.devices))
