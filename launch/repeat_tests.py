"""Run tests repeatedly; print the failures and the seconds of each test.

    python launch/repeat_tests.py [--times=20] [--load] [pytest arguments]

Without arguments of pytest, the tests with the marker mpi run. With --load, four busy
loops and a process that writes to a quarter of the memory run beside the tests; they
end with this command, also if it is killed. The exit code is 1 if a test has failed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
LOOPS = 4
BUSY = "import os\nwhile os.getppid() == {parent}: pass"
WRITES = (
    "import os\nmemory = bytearray({nbytes})\nwhile os.getppid() == {parent}:\n"
    "    for at in range(0, len(memory), 4096): memory[at] ^= 1"
)


class Outcome(NamedTuple):
    """A run of a test: whether it has passed, and its duration in s."""

    passed: bool
    seconds: float


@contextmanager
def loaded() -> Iterator[list[subprocess.Popen]]:
    """Load the processor and the memory of this machine during the context."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    values = {"parent": os.getpid(), "nbytes": memory // 4}
    programs = [*[BUSY] * LOOPS, WRITES]
    processes = [
        subprocess.Popen([sys.executable, "-c", text.format(**values)])
        for text in programs
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_once(arguments: Sequence[str]) -> dict[str, Outcome]:
    """Run pytest; return the outcome of each test that was not skipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.xml")
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={path}"]
        subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], cwd=ROOT)
        cases = ElementTree.parse(path).iter("testcase") if path.exists() else ()
        return {
            f"{case.get('classname')}::{case.get('name')}": Outcome(
                case.find("failure") is None and case.find("error") is None,
                float(case.get("time", 0)),
            )
            for case in cases
            if case.find("skipped") is None
        }


def table(runs: dict[str, list[Outcome]]) -> Iterator[str]:
    """Yield the lines of a table with a row for each test, most failures first."""
    yield f"{'runs':>5} {'failures':>8} {'min s':>7} {'median s':>8} {'max s':>7}  test"
    rows = [
        (sum(not each.passed for each in found), name, found)
        for name, found in runs.items()
    ]
    for failures, name, found in sorted(rows, key=lambda row: (-row[0], row[1])):
        seconds = [each.seconds for each in found]
        times = min(seconds), statistics.median(seconds), max(seconds)
        least, middle, most = (f"{time:.1f}" for time in times)
        yield f"{len(found):5} {failures:8} {least:>7} {middle:>8} {most:>7}  {name}"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="repeat_tests.py", allow_abbrev=False)
    parser.add_argument("--times", type=int, default=20, help="number of runs")
    parser.add_argument("--load", action="store_true", help="load the machine")
    options, arguments = parser.parse_known_args(argv)
    runs: dict[str, list[Outcome]] = {}

    def repeat() -> None:
        for _ in range(options.times):
            for name, outcome in run_once(arguments or ["-m", "mpi"]).items():
                runs.setdefault(name, []).append(outcome)

    try:
        if options.load:
            with loaded():
                repeat()
        else:
            repeat()
    except KeyboardInterrupt:
        pass  # the table of the runs so far
    sys.stdout.write("\n".join(table(runs)) + "\n")
    return int(
        not runs or not all(each.passed for found in runs.values() for each in found)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
