"""The ways to train a deep network, by name: flags and objects in, Steps out."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import flags
import jax
import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.local import local
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Batch, CountedComm, Examples, Model, Params, Step
from dml.update.dense import Optimizer
from dml.wire.mesh import devices
from dml.wire.messages import rates

AHEAD = 2  # minibatches made in the background


class Setup(NamedTuple):
    """What every way trains."""

    values: flags.FlagValues
    comm: CountedComm
    model: Model
    params: Params
    data: Batch | Examples
    batches: Iterable[np.ndarray]
    optimizer: Optimizer
    timer: Timer
    state: Any
    done: int  # steps of a run that goes on

    @property
    def common(self) -> tuple[Any, ...]:
        return self[2:8]

    @property
    def options(self) -> dict[str, Any]:
        ahead = AHEAD if self.comm.network is None else 0  # virtual ranks: one thread
        return {
            "accumulate": self.values.accumulate,
            "state": self.state,
            "ahead": ahead,
        }

    @property
    def wire(self) -> dict[str, Any]:
        name = self.values.allreduce
        if name == "auto":  # what measures a new machine is no part of the first step
            rates(self.comm)
        reduce = flags.allreduce(name, self.values, self.comm.size)
        return {"comm": self.comm, "allreduce": reduce}


def alone(setup: Setup) -> Iterator[Step]:
    if setup.comm.size > 1:
        raise BadInput(
            f"expected one rank with --strategy=serial, got {setup.comm.size}; pass "
            "--strategy=synchronous"
        )
    return serial(*setup.common, **setup.options)


def by_messages(setup: Setup) -> Iterator[Step]:
    values = setup.values
    wire = setup.wire | {"bucket_mb": values.bucket_mb, "noise": values.noise}
    return synchronous(*setup.common, **wire, **setup.options)


def on_devices(setup: Setup) -> Iterator[Step]:
    values = setup.values
    return mesh(
        *setup.common,
        axes=devices.mesh(data=0),
        call=values.call,
        zero=values.zero,
        noise=values.noise,
        **setup.options,
    )


def by_averages(setup: Setup) -> Iterator[Step]:
    every = setup.values.local_every
    after = max(0, setup.values.local_after - setup.done)
    wire = setup.wire | {"every": every, "after": after}
    return local(*setup.common, **wire, **setup.options)


STRATEGIES: dict[str, Callable[[Setup], Iterator[Step]]] = {
    "serial": alone,
    "synchronous": by_messages,
    "mesh": on_devices,
    "local": by_averages,
}
# Flags that only one strategy reads.
OWN = {
    "synchronous": ["bucket_mb"],
    "mesh": ["zero", "call"],
    "local": ["local_every", "local_after"],
}


def workers(values: flags.FlagValues, comm: CountedComm) -> int:
    """Return who shares a minibatch: ranks, or the devices of them all."""
    return len(jax.devices()) if values.strategy == "mesh" else comm.size


def yields(values: flags.FlagValues, updates: int) -> int:
    """Return the Steps of so many updates: those of local end with an average."""
    if values.strategy != "local":
        return updates
    single = min(values.local_after, updates)
    return single - (single - updates) // values.local_every


def fits(values: flags.FlagValues, workers: int) -> None:
    """Refuse flags that the strategy does not read, or that nothing would show."""
    for strategy, own in OWN.items():
        for name in own:
            given = values[name].value != values[name].default
            if given and values.strategy != strategy:
                raise BadInput(
                    f"expected --strategy={strategy} with --{name}="
                    f"{values[name].value}, got --strategy={values.strategy}; leave "
                    f"--{name} out"
                )
    if values.straggle and values.simulate and values.strategy == "mesh":
        raise BadInput(
            f"expected ranks that --straggle={values.straggle} delays, got devices of "
            "one process; leave it out, or pass --strategy=synchronous"
        )
    whole = values.strategy in ("synchronous", "mesh") and values.zero < 3
    able = whole and workers > 1
    if values.noise and not able:
        raise BadInput(
            "expected --noise with two workers or more that hold whole gradients, got "
            f"{workers} by --strategy={values.strategy} --zero={values.zero}; pass "
            "--strategy=synchronous and more ranks"
        )
