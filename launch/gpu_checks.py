"""The checks of gpu.py: a command each, with the sizes of a GPU and of a CPU stand-in.

A check passes if its command ends with code 0 within the time limit and its summary
meets the expectation.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Summary = Mapping[str, Any]
ROOT = Path(__file__).parents[1]
LARGE_MEMORY = 70e9  # bytes for which the minibatches are made: JAX's part of 80 GB
# equal bits need operations without atomic sums, and one choice of algorithms
DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


class Machine(NamedTuple):
    """The machine of the checks.

    Attributes:
      python: Python of the environment.
      mpirun: Its mpirun.
      devices: Number of GPUs, or of stand-ins.
      cpu: Whether CPU devices stand in for GPUs.
      torch: Whether PyTorch is installed.
      memory: Bytes of a device; 0: not known.
    """

    python: str
    mpirun: str
    devices: int
    cpu: bool
    torch: bool
    memory: float = 0.0

    @property
    def ranks(self) -> int:
        """Number of ranks of checks by messages; on one GPU they share it."""
        return max(2, self.devices)

    def run(self, script: str, *flags: str) -> list[str]:
        """Return the command of one process with all devices."""
        return [self.python, str(ROOT / "experiments" / script), *flags]

    def by_rank(self, ranks: int, script: str, *flags: str) -> list[str]:
        """Return the command of ranks with a device each."""
        gpus = "0" if self.cpu else str(self.devices)
        start = [
            self.mpirun,
            "-n",
            str(ranks),
            str(ROOT / "launch" / "one_gpu.sh"),
            gpus,
        ]
        return [*start, *self.run(script, *flags)]

    def scaled(self, batch: int) -> str:
        """Return the flag of a minibatch for 80 GB, or less for less memory."""
        share = min(1.0, self.memory / LARGE_MEMORY) if self.memory else 1.0
        return f"--batch={max(1, int(batch * share))}"

    def sized(self, gpu: str, cpu: str) -> list[str]:
        """Return the flags of a GPU, or those of the stand-in."""
        return (cpu if self.cpu else gpu).split()


class Check(NamedTuple):
    """A check.

    Attributes:
      title: Subject, for the table.
      command: Machine -> command; --out is added.
      seconds: Time limit.
      figures: Summary -> text of the measured numbers.
      expect: Summary -> text of a problem; empty if there is none.
      variables: Variables of the environment; XLA_FLAGS are added to those set.
    """

    title: str
    command: Callable[[Machine], list[str]]
    seconds: int
    figures: Callable[[Summary], str]
    expect: Callable[[Summary], str] = lambda summary: ""
    variables: Mapping[str, str] = {}


def mesh(machine: Machine) -> list[str]:
    sizes = machine.sized("--steps=300", "--steps=20")
    batch = f"--batch={16 * machine.devices}"
    return machine.run("vision.py", "--strategy=mesh", "--data=digits", batch, *sizes)


def mesh_ranks(machine: Machine) -> list[str]:
    sizes = machine.sized("--steps=300", "--steps=20")
    batch = f"--batch={16 * machine.devices}"
    flags = "--strategy=mesh", "--data=digits", batch, *sizes
    start = [machine.mpirun, "-n", str(machine.devices)]
    return [*start, *machine.run("vision.py", *flags)]


def synchronous(machine: Machine) -> list[str]:
    sizes = machine.sized("--steps=300", "--steps=20")
    flags = "--data=digits", f"--batch={16 * machine.ranks}", *sizes
    return machine.by_rank(machine.ranks, "vision.py", *flags)


def hybrid(machine: Machine) -> list[str]:
    return machine.run(
        "hybrid.py",
        *machine.sized(
            "--steps=20",
            f"--steps=2 --blocks={max(2, machine.devices)} --width=16 --heads=2 "
            "--batch=8 --length=8 --vocabulary=300",
        ),
    )


def step_time(machine: Machine, gpu: str, cpu: str) -> list[str]:
    peer = ["--peer=torch_compile"] if machine.torch and not machine.cpu else []
    common = "--strategies=serial", "--dtype=bfloat16"
    return machine.run("step_time.py", *common, *machine.sized(gpu, cpu), *peer)


SMALL_STEP = "--size=tiny --length=16 --batch=4 --vocabulary=300 --rounds=2"


def gpt2_medium(machine: Machine) -> list[str]:
    sizes = "--model=gpt --size=medium --length=1024 --vocabulary=50257"
    return step_time(
        machine, f"{sizes} {machine.scaled(8)}", f"--model=gpt {SMALL_STEP}"
    )


def bert_large(machine: Machine) -> list[str]:
    sizes = "--model=bert --size=large --length=512 --vocabulary=30522"
    return step_time(
        machine, f"{sizes} {machine.scaled(32)}", f"--model=bert {SMALL_STEP}"
    )


def glove(machine: Machine) -> list[str]:
    sizes = machine.sized(
        "--dim=300 --epochs=15",
        f"--corpus={ROOT / 'README.md'} --min_count=1 --dim=300 --epochs=2",
    )
    return machine.run("glove.py", "--strategy=mesh", *sizes)


def memory(machine: Machine) -> list[str]:
    sizes = machine.sized("--model=gpt-mini", "--model=gpt-tiny")
    return machine.run("memory.py", "--high_water", *sizes)


def offload(machine: Machine) -> list[str]:
    sizes = machine.sized(
        "--width=1024 --length=512 --batch=16 --vocabulary=8192 --heads=16",
        "--width=16 --length=8 --blocks=2 --steps=3 --vocabulary=64",
    )
    common = "--virtual_width=0", "--draws=20", "--fractions=1,0.5,0.25"
    return machine.run("offload.py", *common, *sizes)


def accuracy_text(summary: Summary) -> str:
    rate = summary.get("images_per_second") or 0.0
    return f"{summary['accuracy']:.1%} of held-out digits, {rate:,.0f} images/s"


def hybrid_text(summary: Summary) -> str:
    return (
        f"{summary['meshes']} meshes, losses within {summary['loss_difference']:.1e} "
        "of one device"
    )


def step_text(summary: Summary) -> str:
    rate = f"{summary['serial_ms']:,.1f} ms, {summary['serial_tokens_per_second']:,.0f}"
    text = f"{rate} tokens/s"
    if summary["peak_source"] == "data sheet":
        text += f", {summary['serial_share_of_peak']:.1%} of peak"
    if ratio := summary.get("serial_torch_ratio"):
        return f"{text}, {ratio:.2f} x torch.compile"
    return f"{text}, without torch"


def glove_text(summary: Summary) -> str:
    rate = summary.get("records_per_second") or 0.0
    return f"loss {summary['loss']:.5f}, {rate / 1e6:,.2f} M records/s"


def memory_text(summary: Summary) -> str:
    ratios = [
        f"{name.removeprefix('high_water_ratio_').replace('_', ' ')} {value:.3f}"
        for name, value in summary.items()
        if name.startswith("high_water_ratio_") and value
    ]
    return f"predicted/high-water: {', '.join(ratios) or 'not reported by the device'}"


def offload_text(summary: Summary) -> str:
    return f"{summary['found_larger']}; bits: {summary['found_same_bits']}"


def equal_losses(summary: Summary) -> str:
    if summary["verdict"] == "equal":
        return ""
    return f"losses differ by {summary['loss_difference']:.1e}"


def equal_bits(summary: Summary) -> str:
    names = ("same_bits", "counted", "repeated")
    failed = [name for name in names if summary[f"verdict_{name}"] != "holds"]
    return f"does not hold: {', '.join(failed)}" if failed else ""


def finite_loss(summary: Summary) -> str:
    return "" if abs(summary["loss"]) < float("inf") else "loss is not finite"


CHECKS: dict[str, Check] = {
    "mesh": Check(
        "mesh, one process: gradients summed by XLA",
        *(mesh, 600, accuracy_text, finite_loss),
    ),
    "mesh_ranks": Check(
        "mesh, a process for each device: NCCL",
        *(mesh_ranks, 600, accuracy_text, finite_loss),
    ),
    "synchronous": Check(
        "synchronous: gradients summed by MPI",
        *(synchronous, 600, accuracy_text, finite_loss),
    ),
    "hybrid": Check(
        "hybrid: every mesh of the devices",
        *(hybrid, 1800, hybrid_text, equal_losses),
        # without TF32, whose rounding differs between meshes
        {"JAX_DEFAULT_MATMUL_PRECISION": "highest"},
    ),
    "gpt2_medium": Check(
        "GPT-2 medium, a step in bfloat16", gpt2_medium, 1200, step_text
    ),
    "bert_large": Check("BERT-large, a step in bfloat16", bert_large, 1200, step_text),
    "glove": Check("GloVe by a mesh, d = 300", glove, 900, glove_text, finite_loss),
    "memory": Check(
        "high-water mark of memory against the formula", memory, 900, memory_text
    ),
    "offload": Check(
        "offloading between two memories",
        *(offload, 900, offload_text, equal_bits),
        {"XLA_FLAGS": DETERMINISTIC},
    ),
}
