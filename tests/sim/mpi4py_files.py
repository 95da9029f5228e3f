"""Runs the test files of mpi4py on virtual ranks and prints a table.

    pip download --no-binary :all: --no-deps mpi4py==4.1.2     # and unpack it
    python tests/sim/mpi4py_files.py mpi4py-4.1.2 -n 1,2,3,4,5 [test_p2p_buf ...]

A file runs in a process of its own. If a test of it fails, each test runs alone, so
that no test fails because of another. A test that ends with the error of a call that is
left out is skipped, as are tests of memory of GPUs.
"""

import argparse
import json
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path

LEFT_OUT = "expected a call that virtual ranks have"
SKIPPED = {  # tests, and why they do not apply
    "testCommLock": "a private function of mpi4py",
    "testManyISendAndRecv": "assumes that a small send is complete at once",
}
SECONDS = 300  # for one file with one number of ranks


def cases(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from cases(each)
        else:
            yield each


class Results(unittest.TestResult):
    """Outcomes of tests, by name."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def note(self, test, outcome, text=""):
        name = test.id().split(" ")[0]
        if self.found.get(name, ("passed",))[0] in ("passed", "skipped"):
            self.found[name] = outcome, text

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def failed(self, test, error):
        if error[0] is NotImplementedError and LEFT_OUT in str(error[1]):
            self.note(test, "skipped", str(error[1]).split("got ")[1].split(";")[0])
        else:
            self.note(test, "failed", self._exc_info_to_string(error, test))

    def addFailure(self, test, error):
        self.failed(test, error)

    def addError(self, test, error):
        self.failed(test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failed(test, error)


def run_tests(folder, name, size, only):
    """Run the tests of a file, or one of them; return the outcome by test."""
    from dml import sim
    from dml.sim import MPI
    from dml.sim.mpi.modules import Folder, RankModules
    from dml.sim.mpi.ranks import CURRENT
    from dml.sim.mpi.scripts import replaced

    place, results = Folder(str(folder)), []

    def program(comm):
        owner = CURRENT.get()
        modules = RankModules(place, owner.modules)
        implementations = modules.find("arrayimpl")
        backends = implementations.ArrayBackends
        backends[:] = [kind for kind in backends if "GPU" not in kind.__name__]
        module = modules.find(name)
        suite = [*cases(unittest.defaultTestLoader.loadTestsFromModule(module))]
        result = Results()
        results.append(result.found)
        for case in suite:
            reason = SKIPPED.get(case.id().split(".")[-1])
            if reason is not None:
                result.addSkip(case, reason)
            elif only is None or case.id().removeprefix(f"{name}.") == only:
                case.run(result)

    limits = sim.Limits(messages=3_000_000)
    with replaced(folder / "main.py"):
        try:
            MPI.run(program, size, limits=limits)
        except Exception as error:
            results.append({"": ("failed", f"{type(error).__name__}: {error}")})
    return merged(results)


def merged(results):
    """Return the worst outcome of all ranks by test."""
    order, found = ("failed", "passed", "skipped"), {}
    for result in results:
        for test, outcome in result.items():
            kept = found.get(test, ("skipped", ""))
            found[test] = min(kept, outcome, key=lambda one: order.index(one[0]))
            if kept[0] == outcome[0] == "skipped":
                found[test] = outcome
    return found


def in_process(folder, name, size):
    """Run a file, then each of its tests if one fails; print the outcome as JSON."""
    found = run_tests(folder, name, size, None)
    if any(outcome == "failed" for outcome, _ in found.values()):
        alone = {}
        for test in [test for test in found if test]:
            only = test.removeprefix(f"{name}.")
            alone |= run_tests(folder, name, size, only)
            if "" in alone:
                kept = alone.get(test, ("", ""))
                text = alone.pop("")[1]
                alone[test] = "failed", f"{kept[1]}\n{text}"
        found = alone or found
    print("RESULT" + json.dumps(found))


def outcome_of(root, name, size):
    command = [sys.executable, __file__, str(root), "-n", str(size), "--inside", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {name: ("failed", f"more than {SECONDS} s")}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        return {name: ("failed", f"exit code {done.returncode} {done.stderr[-2000:]}")}
    return json.loads(lines[-1].removeprefix("RESULT"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("-n", default="1,2,3,4,5")
    parser.add_argument("--inside", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("names", nargs="*")
    values = parser.parse_intermixed_args()
    folder = (values.root / "test").resolve()
    if values.inside:
        return in_process(folder, values.inside, int(values.n))
    names = values.names or sorted(path.stem for path in folder.glob("test_*.py"))
    sizes = [int(text) for text in values.n.split(",")]
    print(f"{'file':28} {'passed':>7} {'skipped':>8} {'failed':>7}", flush=True)
    for name in names:
        counts, reasons, failures = Counter(), Counter(), {}
        for size in sizes:
            for test, (outcome, text) in outcome_of(values.root, name, size).items():
                counts[outcome] += 1
                if outcome == "skipped":
                    reasons[text] += 1
                elif outcome == "failed":
                    failures.setdefault(test, (size, text))
        why = ", ".join(reason for reason, _ in reasons.most_common(3))
        print(
            f"{name:28} {counts['passed']:7} {counts['skipped']:8} "
            f"{counts['failed']:7}  {why}",
            flush=True,
        )
        if values.verbose:
            seen = set()
            for test, (size, text) in failures.items():
                method = test.split(".")[-1]
                if method in seen:
                    continue
                seen.add(method)
                print(f"--- {test} on {size} ranks\n{text}", flush=True)


if __name__ == "__main__":
    main()
