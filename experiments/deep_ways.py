"""The ways to train a deep network, by name: flags and objects in, Steps out."""

from collections.abc import Callable, Iterator

import deep_hybrid
import flags
import jax
from deep_setup import Setup

from dml.strategies.local import local
from dml.strategies.mesh import mesh
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, CountedComm, Step
from dml.wire.mesh import devices


def alone(setup: Setup) -> Iterator[Step]:
    if setup.comm.size > 1:
        raise BadInput(
            f"expected one rank with --strategy=serial, got {setup.comm.size}; pass "
            "--strategy=synchronous"
        )
    return serial(*setup.common, work=setup.comm.platform.work, **setup.options)


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
        work=setup.comm.platform.work,
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
    "hybrid": deep_hybrid.on_axes,
}
ON_DEVICES = ("mesh", "hybrid")  # on those of JAX, not on ranks
# Flags that only one strategy reads.
OWN = {
    "synchronous": ["bucket_mb"],
    "mesh": ["zero", "call"],
    "local": ["local_every", "local_after"],
    "hybrid": deep_hybrid.OWN,
}


def workers(values: flags.FlagValues, comm: CountedComm) -> int:
    """Return who shares a minibatch equally: ranks, or the devices of them all."""
    if values.strategy == "hybrid":
        return 1  # what microbatches cannot share is one more
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
    if values.accumulate > 1 and values.strategy == "hybrid":
        raise BadInput(
            f"expected --microbatches with --strategy=hybrid, got --accumulate="
            f"{values.accumulate}; pass --microbatches={values.accumulate}"
        )
    if values.straggle and values.simulate and values.strategy in ON_DEVICES:
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
