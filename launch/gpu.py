"""Check dml on the GPUs of this machine; write a page of results.

launch/gpu.sh                        all checks; writes docs/gpu.md
launch/gpu.sh --checks=mesh,glove    some of them
launch/gpu.sh --cpu                  small sizes on CPU devices, in place of GPUs
launch/gpu.sh --dry_run              the commands

Each check is a command with a time limit. The row of a failed check has the last line
of its error; the other checks still run. The exit code is 1 if a check failed.

Cost: an hour at most on GPUs; 2 min with --cpu on 2 cores.
"""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_page
from absl import flags
from gpu_checks import CHECKS, ROOT, Check, Machine
from gpu_page import Result

from dml import processes
from dml.types import BadInput

QUERY_SECONDS = 120
STAND_INS = 2  # CPU devices
STOPPED = 130  # exit code after Ctrl-C, as in a shell
FLAGS = flags.FlagValues()
OPTIONS = {"flag_values": FLAGS}
flags.DEFINE_boolean("help", False, "Show this help.", **OPTIONS)
flags.DEFINE_boolean("cpu", False, "CPU devices in place of GPUs.", **OPTIONS)
flags.DEFINE_boolean("dry_run", False, "Print the commands only.", **OPTIONS)
flags.DEFINE_list("checks", list(CHECKS), "Names of checks; default: all.", **OPTIONS)
flags.DEFINE_string("out", "runs/gpu", "Folder of logs and run folders.", **OPTIONS)
flags.DEFINE_string(
    "page", None, "Page; default: docs/gpu.md, <out>/gpu.md with --cpu.", **OPTIONS
)
flags.DEFINE_integer(
    "devices", None, "Number of devices of --dry_run; default: 8.", 1, **OPTIONS
)
flags.DEFINE_float("patience", 1.0, "Factor of all time limits.", 0.0, **OPTIONS)


def main(argv: Sequence[str]) -> int:
    """Run the checks of the command line; return 1 if any failed."""
    parse(argv)
    out = Path(FLAGS.out).resolve()
    machine = Machine(
        python=sys.executable,
        mpirun=processes.mpirun(),
        devices=STAND_INS if FLAGS.cpu else FLAGS.devices or 8,
        cpu=FLAGS.cpu,
        torch=importlib.util.find_spec("torch") is not None,
    )
    if FLAGS.dry_run:
        for name in FLAGS.checks:
            command = CHECKS[name].command(machine)
            print(f"{shlex.join(command)}  # at most {CHECKS[name].seconds} s")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    device, results = query_devices(machine, out)
    show(results[0])
    if results[0].passed:
        fields = {"devices": device["devices"], "memory": device["memory_bytes"]}
        machine = machine._replace(**fields)
        for name in FLAGS.checks:
            results.append(run_check(name, machine, out))
            show(results[-1])
    write(out, device, results)
    print(gpu_page.conclusion(results))
    return int(not all(one.passed for one in results))


def parse(argv: Sequence[str]) -> None:
    """Set the flags; raise BadInput for unknown flags and checks."""
    FLAGS.unparse_flags()
    try:
        _, *others = FLAGS(argv)
    except flags.Error as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if FLAGS.help:
        sys.stdout.write(f"{__doc__}\n{FLAGS.get_help()}\n")
        sys.exit(0)
    unknown = [name for name in FLAGS.checks if name not in CHECKS] or others
    if unknown:
        raise BadInput(
            f"expected --checks of {', '.join(CHECKS)}, got {unknown[0]!r}; pass some "
            "of them, separated by commas"
        )


def show(result: Result) -> None:
    sys.stdout.write(gpu_page.row(result) + "\n")
    sys.stdout.flush()


def query_devices(machine: Machine, out: Path) -> tuple[dict[str, Any], list[Result]]:
    """Return the devices of JAX, and the result of the query.

    Args:
      machine: The machine.
      out: Folder of the log.
    """
    device: dict[str, Any] = {}

    def read(log: str) -> str:
        device.update(json.loads(log.splitlines()[-1]))
        if not machine.cpu and device["platform"] == "cpu":
            raise ValueError(
                "expected a GPU, got CPU devices only; install jax[cuda12] and a "
                "driver, or pass --cpu"
            )
        return f"{device['devices']} x {device['kind']}, jax {device['jax']}"

    command = [machine.python, str(ROOT / "launch" / "gpu_devices.py")]
    variables = environment(machine, machine.devices)
    limit = QUERY_SECONDS * FLAGS.patience
    timed = measure(command, out / "devices.log", variables, limit, read)
    return device, [Result("devices", "devices of JAX", *timed)]


def run_check(name: str, machine: Machine, out: Path) -> Result:
    """Run a check.

    Args:
      name: Key of CHECKS.
      machine: The machine.
      out: Folder of the log and of the run folder.
    """
    check = CHECKS[name]
    command = [*check.command(machine), "--overwrite", f"--out={out / name}"]
    by_rank = machine.mpirun in command
    variables = environment(machine, 1 if by_rank else machine.devices)
    for key, value in check.variables.items():
        earlier = variables.get(key) if key == "XLA_FLAGS" else None
        variables[key] = f"{earlier} {value}" if earlier else value
    limit = check.seconds * FLAGS.patience

    def read(log: str) -> str:
        return figures(check, json.loads((out / name / "summary.json").read_text()))

    (out / name / "summary.json").unlink(missing_ok=True)  # of an earlier run
    timed = measure(command, out / f"{name}.log", variables, limit, read)
    return Result(name, check.title, *timed)


def figures(check: Check, summary: Mapping[str, Any]) -> str:
    """Return the measured numbers; raise ValueError if they are not as expected."""
    problem, text = check.expect(summary), check.figures(summary)
    if problem:
        raise ValueError(f"{problem} ({text})")
    return text


def environment(machine: Machine, devices: int) -> dict[str, str]:
    """Return the variables of a command; CPU stand-ins are chosen by variables.

    Args:
      machine: The machine.
      devices: Number of stand-ins of each process.
    """
    # several processes, or JAX and PyTorch, may use one GPU
    variables = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if machine.cpu:
        variables |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return variables


def measure(
    command: Sequence[str],
    log: Path,
    variables: Mapping[str, str],
    limit: float,
    read: Callable[[str], str],
) -> tuple[bool, float, str]:
    """Run a command; return whether it passed, its seconds, and numbers or an error.

    Args:
      command: The command.
      log: File of its output.
      variables: Environment.
      limit: Time limit in seconds.
      read: Output -> measured numbers; raises an error if something is wrong.
    """
    start = time.monotonic()
    with log.open("w+", encoding="utf-8", errors="replace") as file:
        file.write(shlex.join(command) + "\n")
        file.flush()
        process = subprocess.Popen(
            [*processes.end_with_parent(), *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # order matters: buffered output would follow the error, not precede it
            env={**variables, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
    seconds, text = time.monotonic() - start, log.read_text("utf-8", "replace")
    if code is None:
        return False, seconds, f"expected an end within {limit:g} s, got none"
    if code:
        return False, seconds, f"code {code}: {last_line(text)}"
    try:
        return True, seconds, read(text)
    except (ValueError, KeyError, OSError, TypeError) as error:
        return False, seconds, f"{type(error).__name__}: {error}"


def end(process: subprocess.Popen) -> None:
    """Kill a process and all processes that it started, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def write(out: Path, device: Mapping[str, Any], results: Sequence[Result]) -> None:
    """Write results.json and the page; no page without a device."""
    record = {"device": device, "results": [one._asdict() for one in results]}
    (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    if not results[0].passed:
        return
    default = out / "gpu.md" if FLAGS.cpu else ROOT / "docs" / "gpu.md"
    page = Path(FLAGS.page) if FLAGS.page else default
    page.write_text(gpu_page.page(device, results), encoding="utf-8")
    print(f"page: {page}")


if __name__ == "__main__":
    try:
        with processes.safe_output():
            sys.exit(main(sys.argv))
    except (BadInput, OSError) as error:
        print(f"gpu.py: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(STOPPED)
