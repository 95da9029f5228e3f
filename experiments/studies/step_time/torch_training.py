"""Training of a PyTorch reference, as a generator of Steps.

Several ranks use DistributedDataParallel over gloo, or over NCCL on GPUs. PyTorch uses
as many threads as XLA, and the fused optimizer, the fastest of PyTorch.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from dml.data.minibatches import take
from dml.data.shards import shard
from dml.metrics.timer import Timer
from dml.types import BadInput, CountedComm, Step
from dml.wire.mesh.devices import coordinator_address

ROUNDING = {"float32": 1e-4, "bfloat16": 3e-2}  # relative tolerance of first losses


def eager(network: Any) -> Any:
    return network


def compiled(network: Any) -> Any:
    import torch

    return torch.compile(network)


PEERS: dict[str, Callable[[Any], Any]] = {"torch": eager, "torch_compile": compiled}


def check(model: str) -> None:
    """Raise BadInput without PyTorch, or for a network without a PyTorch reference."""
    if importlib.util.find_spec("torch") is None:
        raise BadInput(
            "expected torch with --peer, but it is not installed; install the extra "
            "`peers`, or leave --peer out"
        )
    from studies.step_time.torch_networks import NETWORKS

    if model not in NETWORKS:
        raise BadInput(
            f"expected a --model of {', '.join(NETWORKS)} with --peer, got {model!r}; "
            "leave --peer out"
        )


def threads() -> int:
    """Return the number of XLA's threads on CPUs."""
    return int(os.environ.get("NPROC", 0)) or len(os.sched_getaffinity(0))


def steps(name: str, setup: Any) -> Iterator[Step]:
    """Train the PyTorch reference of the network; name is a key of PEERS."""
    import torch

    from studies.step_time.torch_networks import NETWORKS, load

    comm, values = setup.comm, setup.values
    torch.set_num_threads(threads())
    device = torch_device(comm)
    network = NETWORKS[values.model](setup.task.shape)
    load(network, jax.device_get(setup.params))
    network = network.to(device)
    init_process_group(comm, device)
    if comm.size > 1:
        network = torch.nn.parallel.DistributedDataParallel(network)
    return train(PEERS[name](network), setup, device)


def train(network: Any, setup: Any, device: Any) -> Iterator[Step]:
    """Yield a Step after each update."""
    import torch

    from studies.step_time.strategies import LEARNING

    comm, values, data = setup.comm, setup.values, setup.task.data
    weights = list(network.parameters())
    groups = [
        {"params": [tensor for tensor in weights if tensor.ndim >= 2]},
        {
            "params": [tensor for tensor in weights if tensor.ndim < 2],
            "weight_decay": 0.0,
        },
    ]
    optimizer = torch.optim.AdamW(
        groups, LEARNING["learning_rate"], weight_decay=LEARNING["decay"], fused=True
    )
    autocast = torch.autocast(
        device.type, torch.bfloat16, enabled=values.dtype == "bfloat16"
    )
    timer = Timer(comm.Wtime)
    for number, index in enumerate(setup.batches(), 1):
        with timer("input"):
            local = take(data, shard(index, comm.rank, comm.size))
            batch = jax.tree.map(
                lambda tensor: torch.from_numpy(tensor).to(device), local
            )
        with timer("gradient"):
            optimizer.zero_grad()
            with autocast:
                loss = network(*batch)
            loss.backward()
            value = loss.item()  # a GPU may still compute the backward pass
            synchronize(device)
        with timer("update"):
            if values.clip:
                torch.nn.utils.clip_grad_norm_(weights, values.clip)
            optimizer.step()
            synchronize(device)
        measures = {"bytes_held": nbytes(optimizer)}
        yield Step(number, value, None, len(index), timer.lap(), 0, measures)


def synchronize(device: Any) -> None:
    """Wait for a GPU; do nothing on CPUs, where all calls are synchronous."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def torch_device(comm: CountedComm) -> Any:
    """Return the device of this rank: on GPUs, the one that JAX uses."""
    import torch

    if jax.default_backend() != "gpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    hosts = comm.platform.hosts()
    return torch.device("cuda", hosts[: comm.rank].count(hosts[comm.rank]))


def init_process_group(comm: CountedComm, device: Any) -> None:
    """Initialize PyTorch's process group of all ranks; collective."""
    from torch import distributed

    if comm.size > 1 and not distributed.is_initialized():
        hook = sys.excepthook
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"tcp://{coordinator_address(comm)}",
            rank=comm.rank,
            world_size=comm.size,
        )
        # PyTorch replaces our hook, which prints the error and aborts all ranks
        sys.excepthook = hook


def nbytes(optimizer: Any) -> int:
    """Return the bytes of the parameters and of the optimizer's state."""
    weights = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    state_tensors = [
        leaf for state in optimizer.state.values() for leaf in state.values()
    ]
    return sum(
        tensor.numel() * tensor.element_size() for tensor in [*weights, *state_tensors]
    )


def first_loss_difference(rows: Sequence[Mapping[str, Any]], dtype: str) -> float:
    """Return the largest relative difference of first losses; raise if it is large."""
    reference = next(row["first_loss"] for row in rows if not row["peer"])
    difference = max(
        [abs(row["first_loss"] / reference - 1) for row in rows if row["peer"]] or [0]
    )
    if difference > ROUNDING[dtype]:
        raise FloatingPointError(
            f"expected first losses within {ROUNDING[dtype]:g} of each other, got "
            f"{difference:.3g}; check the PyTorch reference before you trust its time"
        )
    return difference
