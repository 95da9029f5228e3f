"""The state of a Server as bytes, for a spare: its rows, clocks, gradients and pulls.

tree of numbers, lists and arrays ─► JSON with numbers for arrays, and the arrays
"""

import json
from io import BytesIO
from typing import Any

import numpy as np

from dml.wire.server.header import ServerHead
from dml.wire.server.pushes import Push
from dml.wire.server.replies import Sent
from dml.wire.server.server import Server
from dml.wire.server.updates import Applied


def encode(tree: Any) -> np.ndarray:
    """Return a tree of dicts, lists, numbers, slices and arrays as bytes."""
    arrays: list[np.ndarray] = []

    def place(value: Any) -> Any:
        if isinstance(value, slice):
            return {"slice": [int(value.start), int(value.stop)]}
        if isinstance(value, np.generic):
            return value.item()
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}

    text = np.frombuffer(json.dumps(tree, default=place).encode(), np.uint8)
    file = BytesIO()
    np.savez(file, text, *arrays)
    return np.frombuffer(file.getvalue(), np.uint8)


def decode(content: np.ndarray) -> Any:
    """Return the tree of these bytes."""
    file = np.load(BytesIO(content.tobytes()))

    def restore(value: dict[str, Any]) -> Any:
        if "slice" in value:
            return slice(*value["slice"])
        return file[f"arr_{value['array'] + 1}"] if "array" in value else value

    return json.loads(file["arr_0"].tobytes(), object_hook=restore)


def state(server: Server) -> dict[str, Any]:
    """Return the state of a server as a tree."""
    updates, out, pushes = server.updates, server.out, server.pushes
    return {
        "values": np.asarray(server.shard.values),
        "optimizer": optimizer(server.shard),
        "clocks": vars(server.clocks),
        "waiting": server.waiting,
        "workers": [sorted(each) for each in worker_sets(server)],
        "version": updates.version,
        "applied": updates.applied,
        "log": np.array(updates.log, float).reshape(-1, len(Applied._fields)),
        "pending": updates.pending,
        "announced": [*pushes.announced.values()],
        "lists": [[*stored.items()] for stored in pushes.lists],
        "received": out.received_counts,
        "sent": [[*map(len, messages)] for messages in out.sent],
        "push_based": [out.reads, out.dirty] if out.push_based else [],
    }


def optimizer(shard: Any) -> list[np.ndarray]:
    """Return the arrays of the state of the update rule, a tree of arrays."""
    if not getattr(shard, "state", ()):
        return []
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(shard.state)]


def set_optimizer(shard: Any, arrays: list[np.ndarray]) -> None:
    """Set the state of the update rule."""
    if arrays:
        import jax

        shard.state = jax.tree.unflatten(jax.tree.structure(shard.state), arrays)


def worker_sets(server: Server) -> list[set[int]]:
    """Return the sets of workers by their state."""
    return [server.active, server.dropped, server.dead]


def restore(server: Server, tree: dict[str, Any]) -> None:
    """Set a new server to the state of another one."""
    updates, out, pushes = server.updates, server.out, server.pushes
    server.shard.values = tree["values"]
    set_optimizer(server.shard, tree["optimizer"])
    vars(server.clocks).update(tree["clocks"])
    server.waiting = [tuple(pull) for pull in tree["waiting"]]
    for each, workers in zip(worker_sets(server), tree["workers"], strict=True):
        each.clear()
        each.update(workers)
    updates.version, updates.applied = tree["version"], tree["applied"]
    updates.log[:] = map(Applied._make, tree["log"].tolist())
    updates.pending = [restore_push(*push) for push in tree["pending"]]
    for push in tree["announced"]:
        pushes.announce(*restore_push(*push)[:3])
    pushes.lists[:] = [dict(stored) for stored in tree["lists"]]
    out.received_counts[:] = tree["received"]
    for messages, counts in zip(out.sent, tree["sent"], strict=True):
        for kind, count in enumerate(counts):
            messages[kind].extend(Sent([], None) for _ in range(count))
    if out.push_based:
        out.reads[:], out.dirty[:] = tree["push_based"]


def restore_push(worker: int, head: list[Any], keys: Any, grads: np.ndarray) -> Push:
    """Return a push from its fields."""
    return Push(worker, ServerHead(*head), keys, grads)
