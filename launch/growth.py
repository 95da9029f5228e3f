"""Growth of the cost of commands: each at three sizes.

    python launch/growth.py                     all families, about 15 minutes
    python launch/growth.py --only=volunteers   the families with this word

The cost is a + b n^e; a contains imports and compilations. Three sizes n, f n and f^2 n
with costs c, c' and c'' determine e = log((c'' - c') / (c' - c)) / log(f). The expected
exponent follows from the operations of the algorithm at the same sizes. Costs are
processor seconds and peak bytes of the process; one thread.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from sweep_runs import THREAD_LIBRARIES

from dml.data.text.generated import generate
from dml.runs.hardware import describe_processor

ROOT = Path(__file__).parents[1]
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in THREAD_LIBRARIES}
ONE_THREAD["NPROC"] = "1"  # of XLA
TYPES = 50_000  # distinct words of generated texts, by Zipf's law


def linear(n: float) -> float:
    return n


def n_log_n(n: float) -> float:
    """Return n log2 n: n messages in each of log2 n rounds."""
    return n * math.log2(n)


def constant(n: float) -> float:
    return 0.0


class Family(NamedTuple):
    """A command with a size n.

    Attributes:
      name: Quantity that grows.
      first: Smallest size.
      command: Script of experiments/ and flags, with {n}; {text} is a text of n words.
      work: Operations at size n.
      factor: Factor between consecutive sizes.
    """

    name: str
    first: int
    command: str
    work: Callable[[float], float] = linear
    factor: int = 10

    @property
    def sizes(self) -> list[int]:
        return [self.first * self.factor**power for power in range(3)]


FAMILIES = (
    Family(
        "virtual ranks of a butterfly",
        400,
        "allreduce.py --simulate={n} --algorithms=butterfly --buffers=plain "
        "--sizes=400B --repeats=1",
        n_log_n,
    ),
    Family(
        "virtual workers of a server",
        400,
        "server.py --simulate={n} --problem=generated --servers=1 --clocks=1",
    ),
    Family(
        "workers with random delays",
        1000,
        "stragglers.py --workers={n} --measure=0 --steps=10 --law=pareto:2,3",
    ),
    Family(
        "volunteers",
        1000,
        "volunteers.py --simulate={n} --rounds=6 --groups=10 --matchmakings=2 "
        "--compared=16 --most=5 --deadlines=60",
    ),
    Family("words counted for GloVe", 10**5, "cooccurrence.py --corpus={text}"),
    Family("words of a corpus of GloVe", 10**5, "glove.py --corpus={text} --epochs=3"),
    Family("rows of boosting", 50_000, "boosting.py --rows={n} --rounds=50", factor=4),
    Family(
        "features of a linear model",
        10**5,
        "dimensions.py --features={n} --p=1 --best_p=2 --gap_p=1 --alphas=1e-6",
        factor=4,
    ),
    Family(
        "blocks of a transformer",
        1,
        "hybrid.py --mesh=data:1 --blocks={n} --steps=3 --batch=4 --width=16 "
        "--heads=2 --length=16 --vocabulary=300",
        factor=4,
    ),
    Family(
        "devices of a plan",
        128,
        "plan.py --model=gpt3_175b --devices={n} --batch=12800",
        constant,
    ),
)


class Cost(NamedTuple):
    """Processor seconds and peak bytes of a process."""

    seconds: float
    nbytes: float


def run(command: Sequence[str]) -> Cost:
    """Run a command of experiments/; exit with its output if it fails."""
    script, *arguments = command
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, str(ROOT / "experiments" / script), *arguments]
        program.append(f"--out={folder}/run")
        # without the prepared data of earlier runs
        environment = os.environ | ONE_THREAD | {"DML_DATA": folder}
        output = Path(folder, "output.txt")
        with output.open("w") as stream:
            process = subprocess.Popen(
                program, env=environment, stdout=stream, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if code := process.returncode:
            sys.exit(f"{' '.join(command)}: exit code {code}\n{output.read_text()}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0)


def write_text(path: Path, count: int) -> None:
    """Write a text of `count` random words, whose frequencies follow Zipf's law."""
    words = chain.from_iterable(map(str.split, generate(TYPES, count, seed=0)))
    path.write_text(" ".join(islice(words, count)))


def measure(family: Family, folder: Path) -> list[Cost]:
    """Return the costs at the three sizes."""
    costs = []
    for n in family.sizes:
        text = folder / "text.txt"
        if "{text}" in family.command:
            write_text(text, n)
        costs.append(run(family.command.format(n=n, text=text).split()))
    return costs


def exponent(costs: Sequence[float], factor: float) -> float:
    """Return e of a + b n^e by three values; -inf if they do not increase twice."""
    low, high = costs[1] - costs[0], costs[2] - costs[1]
    return math.log(high / low, factor) if low > 0 < high else -math.inf


def row(family: Family, costs: Sequence[Cost]) -> str:
    """Return a row of the table."""
    sizes, seconds = family.sizes, [cost.seconds for cost in costs]
    expected = exponent([family.work(n) for n in sizes], family.factor)
    found = exponent(seconds, family.factor)
    cells = [
        family.name,
        f"{sizes[0]:,} to {sizes[2]:,}",
        ", ".join(f"{one:.3g}" for one in seconds),
        f"{expected:.2f}" if expected > -math.inf else "0",
        f"{found:.2f}" if found > -math.inf else "-",
        ", ".join(f"{cost.nbytes / 1e9:.2g}" for cost in costs),
    ]
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str]) -> None:
    """Print a Markdown table of the families."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="word in the names of families")
    only = parser.parse_args(argv).only
    chosen = [family for family in FAMILIES if only in family.name]
    if not chosen:
        names = "; ".join(family.name for family in FAMILIES)
        parser.error(f"expected a word of {names}, got {only!r}")
    processor = describe_processor()["processor"]
    print(f"{processor}, one thread; processor seconds, peak memory in GB\n")
    print("| n | sizes | seconds | expected exponent | measured | GB |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for family in chosen:
            print(row(family, measure(family, Path(folder))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
