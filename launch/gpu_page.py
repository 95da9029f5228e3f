"""The page of gpu.py, and its table on the console."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpu_checks import CHECKS

HEAD = """\
# Checks on GPUs

Written by `launch/gpu.sh`, which runs checks that need a GPU and are not part of the
tests. Each check is one command with a time limit. The row of a failed check has the
last line of its error: see [starting runs](../launch/README.md).

```sh
launch/gpu.sh                                   # all checks; writes this page
launch/gpu.sh --checks=gpt2_medium,bert_large   # two of them
launch/gpu.sh --dry_run                         # the commands
launch/gpu.sh --cpu                             # small sizes on CPU devices
```

"""
NOTHING = """\
**No GPU has run these checks yet**, so this page has no figures. The script itself is
tested with CPU devices in place of GPUs.

"""
STAND_IN = """\
**CPU devices stood in for GPUs**: sizes are small, and no figure is one of a GPU.

"""
FIELDS = ("kind", "devices", "memory_bytes", "jax", "jaxlib", "python")


class Result(NamedTuple):
    """The result of a check.

    Attributes:
      name: Key of CHECKS, or `devices`.
      title: Subject.
      passed: Whether the check passed.
      seconds: Duration.
      text: Measured numbers, or the last line of the error.
    """

    name: str
    title: str
    passed: bool
    seconds: float
    text: str


def page(device: Mapping[str, Any] | None, results: Sequence[Result]) -> str:
    """Return the page.

    Args:
      device: Result of the device query; None: no GPU has run the checks.
      results: Results of the checks.
    """
    if device is None:
        lines = ["| check | command |", "| --- | --- |"]
        lines += [
            f"| {check.title} | `--checks={name}` |" for name, check in CHECKS.items()
        ]
        return HEAD + NOTHING + "\n".join(lines) + "\n"
    text = HEAD + (STAND_IN if device.get("platform") == "cpu" else "")
    facts = [f"{name}: {device[name]}" for name in FIELDS if device.get(name)]
    lines = [
        *(f"- {line}" for line in facts),
        "",
        "| check | result | seconds | figures |",
    ]
    lines += ["| --- | --- | --- | --- |"]
    lines += [
        f"| {one.title} | {verdict(one)} | {one.seconds:.0f} | {cell(one.text)} |"
        for one in results
    ]
    return text + "\n".join(lines) + f"\n\n{conclusion(results)}\n"


def verdict(result: Result) -> str:
    return "pass" if result.passed else "**fail**"


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def row(result: Result) -> str:
    """Return a line of the console's table."""
    word = "pass" if result.passed else "FAIL"
    return f"{result.name:<12} {word}  {result.seconds:6.1f} s  {result.text}"


def conclusion(results: Sequence[Result]) -> str:
    passed = sum(one.passed for one in results)
    failed = [one.name for one in results if not one.passed]
    text = f"{passed} of {len(results)} checks passed"
    return f"{text}; failed: {', '.join(failed)}." if failed else f"{text}."
