"""The flags of an experiment, and the start and end of a command.

`define` returns the flags of an experiment, `parse` reads them, `ranks` calls the
program on every rank, and `run` runs a command: bad input is one line and exit code 2.
"""

import errno
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab import readers, resuming
from lab.flag_values import check_memory as check_memory
from lab.flag_values import element_counts as element_counts
from lab.flag_values import integers as integers
from lab.flag_values import names as names
from lab.flag_values import nbytes as nbytes
from lab.flag_values import numbers as numbers
from lab.flag_values import positive as positive
from lab.flag_values import positive_numbers as positive_numbers
from lab.flag_values import seeds as seeds
from lab.flag_values import shard_ranks as shard_ranks
from lab.flag_values import whole_numbers as whole_numbers
from lab.help import print_help
from lab.progress import PROGRESS, is_rank_0
from lab.shared_flags import ALLREDUCES as ALLREDUCES
from lab.shared_flags import ORDER as ORDER
from lab.shared_flags import RANKS as RANKS
from lab.shared_flags import SHARED, Extensible, FlagValues
from lab.shared_flags import TIMELINE as TIMELINE
from lab.shared_flags import VIRTUAL as VIRTUAL
from lab.shared_flags import WRITTEN as WRITTEN
from lab.shared_flags import chosen as chosen
from lab.shared_flags import widths as widths
from lab.stand_ins import HELP
from absl import flags

from dml import extend, extras, processes
from dml.types import BadInput, Comm, CountedComm, RankFailed, Reducer
from dml.wire.comm.started import started_ranks
from dml.wire.reducers import names as reducer_names


class Stopped(Exception):
    """A run that was stopped and has saved its state; the message is how to resume."""


STOPPED = processes.STOPPED
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a full disk
MAX_TIMELINE_RANKS = 2500  # largest number of ranks that are traced
DTYPES = ["float16", "float32", "float64", "int32", "int64"]


def define(*shared: str) -> FlagValues:
    """Return the flags WRITTEN and those of SHARED with the given names.

    Each experiment has its own set, to which it adds further flags. Two
    experiments can be imported side by side.
    """
    values = FlagValues()
    values.help_flag()
    for name in (*WRITTEN, *shared):
        kind, *arguments = SHARED[name]
        getattr(values, kind)(name, *arguments)
    return values


def parse(
    values: FlagValues, argv: Sequence[str], on_devices: Collection[str] = ()
) -> FlagValues:
    """Set the flags by argv, the others to their defaults; return them.

    Args:
      values: The flags.
      argv: The command's arguments.
      on_devices: Values of --strategy that train on JAX devices. A user's file is then
        imported when it is used, after the number of devices is set.
    """
    values.unparse_flags()
    try:
        _, *extra = values(argv)
        if not on_devices or values.strategy not in on_devices:
            check_own(values)
    except flags.Error as error:
        raise BadInput(f"{error}; --help lists the flags") from error
    if HELP.intersection(argv[1:]) and not values.help:
        raise BadInput("expected a value of a flag before --help, got none; pass one")
    if extra:
        raise BadInput(f"expected --flag=value, got {extra[0]!r}; --help lists them")
    if not values.help:
        resuming.complete(values)
        check_processes(values)
    for name, value in chosen(values).items():
        if value != value:  # NaN
            raise BadInput(f"expected a number in --{name}, got {value}; correct it")
    if values.help:
        print_help(values, values.help == "all")
        sys.exit(0)
    resuming.check_folder(values)
    if "allreduce" in values:
        readers.check(values, "allreduce", readers.HIERARCHICAL)
    if argv is sys.argv:  # a command, not a call of its main
        of_a_start = resuming.OF_A_START
        free = {k: v for k, v in chosen(values).items() if k not in of_a_start}
        PROGRESS.begin(purpose(), free)
    return values


def check_processes(values: FlagValues) -> None:
    """Raise if mpirun started several processes that would each run --simulate."""
    ranks = started_ranks()
    if ranks > 1 and "simulate" in values and values.simulate:
        raise BadInput(
            f"expected one process with --simulate={values.simulate}, got {ranks} of "
            "mpirun; start without mpirun, or delete --simulate"
        )


def check_own(values: FlagValues) -> None:
    """Import the objects of the user that flags name; raise if there is none."""
    for name in values:
        flag = values[name]
        if isinstance(flag.parser, Extensible) and flag.value is not None:
            try:
                flag.parser.check(flag.value)
            except BadInput as error:
                raise flags.IllegalFlagValueError(
                    f"flag --{name}={flag.value}: {error}"
                ) from error


def purpose() -> str:
    """Return the first line of the command's docstring."""
    lines = (sys.modules["__main__"].__doc__ or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else "a command"


def ranks(
    program: Callable[[CountedComm], Any],
    values: FlagValues,
    devices: bool = False,
    sleeping: bool = True,
    read: Sequence[str] = (),
) -> list[Any]:
    """Call program(comm) on this rank, or on --simulate virtual ranks.

    Args:
        program: receives a communicator that counts its traffic.
        values: the flags.
        devices: whether the virtual ranks are devices of one rank.
        sleeping: whether real ranks sleep while they wait if there are more ranks than
          cores; MPI's own waiting takes the cores of the others.
        read: flags of virtual ranks that the program also reads on real ranks.

    Returns:
        The results of all ranks of this process.
    """
    from lab.recording import record_or_replay

    from dml.wire.comm import Metered, Traced

    readers.check_virtual(values, read, devices)

    def counted(comm: Comm) -> Any:
        traced = "timeline" in values and values.timeline and not devices
        traced = traced and comm.size <= MAX_TIMELINE_RANKS
        return program(Metered(Traced(comm) if traced else comm))

    call = record_or_replay(counted, program, values)
    if not values.simulate:
        from dml.wire.comm.mpi import world
        from dml.wire.comm.mpi_library import is_fault_tolerant
        from dml.wire.comm.sleeping import sleep_if_oversubscribed

        elastic = survives_deaths(values)  # dead ranks report nothing
        if elastic and not is_fault_tolerant():
            raise BadInput(
                "expected mpirun --with-ft ulfm of Open MPI with --elastic, got an MPI "
                "that ends all ranks when one dies; start by launch/local.sh -n P "
                "--elastic, or pass --simulate=P"
            )
        comm = world(0 if elastic else values.watchdog)
        return [call(sleep_if_oversubscribed(comm) if sleeping else comm)]
    from dml import sim

    size = values.simulate
    if devices:
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", size)
        size = 1
    from dml.sim.events import events
    from dml.sim.networks.named import network

    try:
        results = sim.run(
            call,
            size,
            network(values.network, size),
            events=events(values.events),
            limits=sim.Limits(values.virtual_seconds),
        )
    except sim.Deadlock as error:
        head, *lines = str(error).splitlines()
        details = "; ".join(line.strip() for line in lines[:4])
        raise BadInput(f"{head}: {details}" if details else head) from error
    if "die" in values.events and all(result is None for result in results):
        raise BadInput(
            f"expected a rank that lives until the end, got --events={values.events}; "
            "delete a death"
        )
    return results


def survives_deaths(values: FlagValues) -> bool:
    """Return whether the flags request a run that continues when ranks die."""
    replicas = values.replicas if "replicas" in values else 1
    return replicas > 1 or ("elastic" in values and bool(values.elastic))


def delayed(values: FlagValues, comm: CountedComm) -> CountedComm:
    """Return comm, wrapped with the delays of --straggle if there are any."""
    if not values.straggle:
        return comm
    from dml.sim.delays import delay_distribution, step_seconds
    from dml.wire.comm import Delayed

    return Delayed(
        comm, step_seconds(delay_distribution(values.straggle), values.seed, comm.rank)
    )


def run(main: Callable[[Sequence[str]], Any]) -> None:
    """Call main(argv) as a command: bad input is one line, and exit code 2."""
    processes.raise_at_interrupt()
    with processes.safe_output():
        run_once(main)


def run_once(main: Callable[[Sequence[str]], Any]) -> None:
    """Call main(argv); exit with a line and a code for bad input and interrupts."""
    complete = False
    try:
        main(sys.argv)
        complete = True
    except (
        *(BadInput, FloatingPointError, OSError, Stopped, KeyboardInterrupt),
        *(MemoryError, RankFailed, ModuleNotFoundError),
    ) as error:
        PROGRESS.end(complete)  # before the imports below
        missing = extras.explain(error)
        if isinstance(error, ModuleNotFoundError) and not missing:
            raise
        text = missing or " ".join(str(error).split())
        if isinstance(error, MemoryError):
            text = f"expected enough memory, got: {text}; pass smaller sizes"
        if isinstance(error, RankFailed):
            text += "; the run cannot continue: start it again"
        line = f"{Path(sys.argv[0]).name}: {text}"
        if HELP.intersection(sys.argv):  # without MPI
            sys.stderr.write(f"{line}\n" if is_rank_0() else "")
            sys.exit(2)
        from dml.wire.comm.abort import exit_with_error, exit_without_cleanup
        from dml.wire.comm.mpi import world

        if isinstance(error, KeyboardInterrupt):
            exit_without_cleanup(world(), f"{line}stopped", STOPPED)
        if isinstance(error, OSError) and error.errno in FULL:
            line += "; expected disk space: free space, or pass --out=<another disk>"
        elif isinstance(error, OSError):
            line += "; expected readable and writable files: correct the path"
        codes = {Stopped: STOPPED, RankFailed: 1}
        exit_with_error(world(), line, codes.get(type(error), 2))
    finally:
        PROGRESS.end(complete)


def allreduce(name: str, values: FlagValues, size: int) -> Callable[..., None]:
    """Return an all-reduce by name, with the options of the flags."""
    from dml.wire.collectives import ALLREDUCE, with_check, with_first_check

    group = widths(values.group)
    if max(group) > size:
        raise BadInput(
            f"expected groups of at most {size} ranks, got --group={values.group}; "
            f"pass --group=<1 to {size}>, or 0 for hosts"
        )
    call = extend.find(name, ALLREDUCE, extend.ALLREDUCES)
    if name not in ALLREDUCE:
        call = with_first_check(call, name)
    if name == "hierarchical":
        outside = ALLREDUCE[values.outside]
        call = partial(call, group=group, outside=outside)
    return with_check(call) if values.check else call


def reducer(
    text: str, allreduce: Callable[..., None], byzantine: Any = None
) -> Reducer:
    """Return a reducer by its name in --reduce, under an attack if there is one."""
    if reducer_names.is_name(text) or reducer_names.own_code(text):
        return reducer_names.reducer(text, allreduce, byzantine)
    if byzantine:
        raise BadInput(
            f"expected a reducer of dml with --attack, got --reduce={text}; pass "
            "--reduce=exact or a robust rule"
        )
    make = extend.find(text, reducer_names.REDUCERS, extend.REDUCERS)
    made: Reducer = extend.make(text, make, Reducer, allreduce)
    return made


def check_terms(made: Reducer, text: str, terms: int) -> None:
    """Raise BadInput if there are fewer terms of an update than a reducer needs."""
    if terms < made.least_terms:
        raise BadInput(
            f"expected n >= {made.least_terms} workers with --reduce={text}, got "
            f"{terms}; pass more workers or a smaller f"
        )


def check_reduce(text: str, strategy: str, optimizer: str) -> None:
    """Raise BadInput if a strategy or an optimizer does not fit to --reduce.

    Args:
      text: Value of --reduce.
      strategy: Name of the strategy, which uses a reducer.
      optimizer: Name of the optimizer; empty: the default of a problem.
    """
    if strategy == "local" and not reducer_names.is_mean(text):
        raise BadInput(
            f"expected --reduce=exact, order_free or a robust rule without +momentum "
            f"with --strategy=local, which averages parameters, got --reduce={text}; "
            "pass --strategy=synchronous"
        )
    if reducer_names.has_momentum(text) and optimizer != "sgd":
        raise BadInput(
            f"expected --optimizer=sgd with --reduce={text}, which has momentum, got "
            f"--optimizer={optimizer or '<default of the problem>'}; pass "
            "--optimizer=sgd and --lr"
        )
