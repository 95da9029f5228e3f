"""The reference C program on the same counts and flags, in a table beside our ways."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import counting
import flags

from dml.metrics import vectors, words
from dml.types import BadInput
from dml.wire.messages import Metered
from dml.wire.messages.comm import world

NAME = "C program"


def run(tools: Path, path: Path, threads: int, values: flags.FlagValues) -> dict:
    """Shuffle and train with so many threads; return a row like a summary.json."""
    for tool in ("shuffle", "glove"):
        if not (tools / tool).is_file():
            raise BadInput(
                f"expected the C program {tool} in --reference={tools}, got none; "
                "build it with make"
            )
    counts = counting.counted(Metered(world(0)), values)
    out = path / f"reference-{threads}"
    out.mkdir(parents=True, exist_ok=True)
    with (
        open(counts.folder / "cooccurrence.bin", "rb") as source,
        open(out / "shuffled.bin", "wb") as target,
    ):
        subprocess.run(
            [tools / "shuffle", "-verbose", "0", "-seed", str(values.seed + 1)],
            stdin=source,
            stdout=target,
            stderr=subprocess.DEVNULL,
            cwd=out,
            check=True,
        )
    start = time.perf_counter()
    said = subprocess.run(
        [
            *(tools / "glove", "-threads", str(threads), "-binary", "0"),
            *("-input-file", "shuffled.bin", "-save-file", "vectors"),
            *("-vocab-file", counts.folder / "vocab.txt"),
            *("-x-max", str(values.x_max), "-alpha", str(values.alpha)),
            *("-vector-size", str(values.dim), "-iter", str(values.epochs)),
            *("-seed", str(values.seed + 1), "-verbose", "1"),
        ],
        capture_output=True,
        text=True,
        cwd=out,
        check=True,
    ).stderr
    seconds = time.perf_counter() - start
    (out / "shuffled.bin").unlink()
    return row(out, said, seconds, threads, len(counts.records))


def row(out: Path, said: str, seconds: float, threads: int, records: int) -> dict:
    costs = re.findall(r"cost: ([\d.]+)", said)
    known, found = vectors.load(out / "vectors.txt")
    scores: dict[str, Any] = words.evaluate(known[:-1], found[:-1])  # without <unk>
    return {
        "strategy": NAME,
        "ranks": threads,
        "loss": float(costs[-1]),
        **scores,
        "records_per_second": records * len(costs) / seconds,
        "seconds": seconds,
        "words_sent": 0,
        "vectors_sha256": "",
    }
