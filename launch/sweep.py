"""Run a script with every combination of flags; collect the results in one table.

python launch/sweep.py experiments/glove.py --n=1,2,4 --strategy=hogwild,rotation \\
    --lr=0.025,0.05 --repeat=3                          a grid of three seeds each
python launch/sweep.py experiments/vision.py --random=20 --lr=1e-3..1:log
python launch/sweep.py SCRIPT --lr=@rates.txt --delays='"0,1,4","0"'
python launch/sweep.py SCRIPT … --x=lr --y=loss --by=n    also draw a figure
python launch/sweep.py SCRIPT … -- --n=1,30               a flag --n of the script

A run uses one core per rank; on a shared GPU, pass --jobs=1. A restarted sweep runs
only missing and failed runs.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

import sweep_flags
import sweep_grid
import sweep_guard
import sweep_runs
from sweep_runs import Job

from dml import processes
from dml.types import BadInput

FLAGS = sweep_flags.define()
STOPPED = 130  # exit code after Ctrl-C, as in a shell
TASK = "SLURM_ARRAY_TASK_ID"


def main(argv: Sequence[str]) -> int:
    """Run the missing cells and write the tables; return 1 if any run failed."""
    script, cells = sweep_flags.read(FLAGS, argv)
    sweep_grid.check_x_axis(cells, FLAGS.x)
    mpirun = "" if FLAGS.n is None else processes.mpirun()
    out = Path(FLAGS.out or Path("runs", "sweeps", Path(script).stem))
    cores = sweep_runs.available_cores(FLAGS.jobs)
    jobs = sweep_runs.jobs(script, cells, out, mpirun, len(cores))
    selected = selected_cells(FLAGS.only, len(jobs))
    missing = [index for index in selected if not sweep_runs.done(jobs[index])]
    if FLAGS.slurm:
        return submit(argv, jobs, missing)
    if FLAGS.dry_run:
        for index in selected:
            prefix = "" if index in missing else "# done: "
            print(prefix + shlex.join(jobs[index].command))
        print(f"# {len(missing)} of {len(selected)} missing")
        return 0
    complete = len(selected) == len(jobs)
    with sweep_guard.lock_folder(out, shared=not complete):
        if not run([jobs[index] for index in missing], len(selected), cores):
            print("sweep.py: interrupted; start again to continue", file=sys.stderr)
            return STOPPED
        if complete:
            return report(jobs, out)
    return int(not sweep_runs.done(jobs[selected[0]]))


def selected_cells(only: int | None, count: int) -> Sequence[int]:
    """Return the indices of the cells to run: of --only, of the Slurm task, or all."""
    if only is None and os.environ.get(TASK, "").isdecimal():
        only = int(os.environ[TASK])
    if only is None:
        return range(count)
    if only >= count:
        raise BadInput(f"expected --only below {count}, got {only}; correct it")
    return [only]


def submit(argv: Sequence[str], jobs: Sequence[Job], missing: Sequence[int]) -> int:
    """Submit the missing cells to Slurm, or print the command; write no tables."""
    cores = max(job.cell.ranks or 1 for job in jobs)
    command = submission(argv, missing, cores)
    if missing and not FLAGS.dry_run:
        return subprocess.run(command).returncode
    print(shlex.join(command) if missing else "# nothing is missing")
    return 0


def submission(argv: Sequence[str], missing: Sequence[int], cores: int) -> list[str]:
    """Return the sbatch command of an array with a task per cell."""
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = [
        argument
        for position, argument in enumerate(argv)
        if position > end or argument.split("=")[0] not in ("--slurm", "--dry_run")
    ]
    return [
        "sbatch",
        f"--array={ranges(missing)}",
        "--ntasks=1",
        f"--cpus-per-task={cores}",
        str(Path(argv[0]).with_name("slurm.sbatch")),
        *arguments,
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers in Slurm's format: 0-4,7."""
    # Consecutive numbers have equal differences to their positions.
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([number for _, number in group] for _, group in groups)
    return ",".join(
        f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs
    )


def run(missing: Sequence[Job], total: int, cores: Sequence[int]) -> bool:
    """Run the missing cells and show progress; return False if interrupted.

    Args:
      missing: Cells to run.
      total: Number of cells, with those of earlier sweeps.
      cores: Cores to use.
    """
    from sweep_table import table

    with (
        sweep_guard.interruptible() as interrupted,
        table(total - len(missing), len(cores)) as show,
        closing(sweep_runs.execute(missing, cores, FLAGS.timeout)) as states,
    ):
        for state in states:
            show(state)
            if interrupted():
                return False
    return True


def report(jobs: Sequence[Job], out: Path) -> int:
    """Write and print the tables, and draw a figure; return 1 if any run failed."""
    import sweep_results
    from sweep_table import print_table

    ended = [run for job in jobs if (run := sweep_runs.earlier_result(job))]
    keys = sweep_results.keys([job.cell for job in jobs])
    rows = sweep_results.frame(ended)
    groups = sweep_results.groups(rows, keys)
    sweep_results.write(out, results=rows, groups=groups)
    print_table(sweep_results.printed_columns(groups, keys, FLAGS.y))
    failed = [run for run in ended if run.error]
    for job, code, *_ in failed:
        print(f"failed: {job.folder}/output.txt  code {code}")
    print(f"{out}/results.csv  .parquet  groups.csv  .parquet")
    if FLAGS.x and len(failed) < len(ended):
        sweep_results.draw(out / "figure", rows, FLAGS.x, FLAGS.y, FLAGS.by, FLAGS.log)
        others = [key for key in keys if key not in (FLAGS.x, FLAGS.by)]
        over = [key for key in others if len({*rows[key]}) > 1]
        averaged = ", ".join([*over, "seeds"])
        print(f"{out}/figure.svg  .png  medians over {averaged}")
    return int(bool(failed))


if __name__ == "__main__":
    try:
        with processes.safe_output():
            sys.exit(main(sys.argv))
    except (BadInput, OSError) as error:
        print(f"sweep.py: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before the first run, or after the last
        sys.exit(STOPPED)
