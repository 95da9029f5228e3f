"""The reference C program on the same counts and flags."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

from lab import flags
import numpy as np

from dml import processes
from dml.evaluation import words
from dml.types import BadInput
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from studies.glove import counting

NAME = "C program"


def check(tools: Path) -> None:
    """Raise BadInput if the folder lacks the C program."""
    for tool in ("shuffle", "glove"):
        if not (tools / tool).is_file():
            raise BadInput(
                f"expected the C program {tool} in --reference={tools}, got none; "
                "build it with make"
            )


def run(tools: Path, path: Path, threads: int, values: flags.FlagValues) -> dict:
    """Shuffle and train with the C program; return a row like a summary.json.

    Args:
        tools: folder of the compiled program.
        path: run folder.
        threads: threads of training.
        values: flags.
    """
    check(tools)
    tools = tools.resolve()  # the program runs in another folder
    counts = counting.counts(Metered(world(0)), values)
    vocabulary = (counts.folder / "vocab.txt").resolve()
    out = path / f"reference-{threads}"
    out.mkdir(parents=True, exist_ok=True)
    with (
        open(counts.folder / "cooccurrence.bin", "rb") as source,
        open(out / "shuffled.bin", "wb") as target,
    ):
        timed(
            [tools / "shuffle", "-verbose", "0", "-seed", str(values.seed + 1)],
            out,
            stdin=source,
            stdout=target,
        )
    command = [
        *(tools / "glove", "-threads", str(threads), "-binary", "0"),
        *("-input-file", "shuffled.bin", "-save-file", "vectors"),
        *("-vocab-file", vocabulary, "-vector-size", str(values.dim)),
        *("-x-max", str(values.x_max), "-alpha", str(values.alpha)),
        *("-eta", str(values.lr), "-seed", str(values.seed + 1), "-verbose", "1"),
    ]
    # the time of 0 epochs is reading and writing, which is subtracted
    _, overhead = timed([*command, "-iter", "0"], out)
    log, seconds = timed([*command, "-iter", str(values.epochs)], out)
    (out / "shuffled.bin").unlink()
    return row(out, log, seconds - overhead, threads, len(counts.records))


def timed(command: list, folder: Path, **streams: Any) -> tuple[str, float]:
    """Run a tool in a folder; return its stderr and its seconds."""
    start = time.perf_counter()
    process = subprocess.run(
        [*processes.end_with_parent(), *command],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        **streams,
    )
    if process.returncode:
        raise BadInput(
            f"expected {command[0]} to exit with code 0, got {process.returncode}: "
            f"{process.stderr[-300:]}; try it by hand in {folder}"
        )
    return process.stderr, time.perf_counter() - start


def row(out: Path, log: str, seconds: float, threads: int, records: int) -> dict:
    costs = re.findall(r"cost: ([\d.]+)", log)
    if not costs:
        raise BadInput(
            f"expected `cost: <number>` of each epoch from the C program, got "
            f"{log[-300:]!r}; pass a lower --lr, or another build"
        )
    text = (out / "vectors.txt").read_text("utf-8")
    lines = [line.split() for line in text.splitlines()[:-1]]  # the last is <unk>
    table = np.array([numbers for _, *numbers in lines], np.float32)
    scores: dict[str, Any] = words.evaluate([line[0] for line in lines], table)
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
