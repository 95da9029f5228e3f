"""Plans in virtual time: seconds of an iteration by capacity and rule."""

from collections.abc import Iterator
from itertools import islice

from dml.runs.writers import Row
from dml.wire.plans.offloading.offload import Access, Iteration, moved
from dml.wire.plans.offloading.prefetching import plans, timeline
from studies.offload.workload import Device, Workload, adam, capacities

WARM_UP, ITERATIONS = 4, 12  # of a plan, before the period that is measured
# rule, whether moves start early
METHODS = {
    "belady": ("belady", True),
    "belady, no prefetch": ("belady", False),
    "lru": ("lru", True),
    "on_demand": ("on_demand", False),
}
CYCLIC = (("belady", "belady", 0), ("reserve", "belady", 1), ("lru", "lru", 0))
NETWORKS = {"saved": False, "recomputed": True}  # activations


def rows(workload: Workload, device: Device, fractions: list[float]) -> Iterator[Row]:
    """Yield the seconds of an iteration by network, capacity and method.

    Args:
      workload: The GPT.
      device: Its speeds.
      fractions: Capacities, relative to the memory in which everything fits.
    """
    for network, remat in NETWORKS.items():
        each = workload._replace(remat=remat)
        iteration = device.iteration(each.program(each.model(), adam()))
        compute = sum(access.seconds for access in iteration.accesses)
        for fraction, capacity in capacities(iteration, fractions).items():
            for method in METHODS:
                seconds, nbytes = period(iteration, capacity, method, device.link)
                transfer = nbytes / device.link
                yield {
                    "network": network,
                    "method": method,
                    "fraction": fraction,
                    "capacity": capacity,
                    "least": iteration.least,
                    "moved_bytes": nbytes,
                    "compute": compute,
                    "transfer": transfer,
                    "seconds": seconds,
                    "throughput": compute / seconds,
                    "above_bound": seconds / max(compute, transfer),
                }


def period(
    iteration: Iteration, capacity: int, method: str, bandwidth: float
) -> tuple[float, float]:
    """Return seconds and moved bytes of an iteration, after the first iterations.

    Args:
      iteration: The recorded iteration.
      capacity: Bytes of device memory.
      method: Key of METHODS.
      bandwidth: Bytes per second of the copy lane.
    """
    rule, prefetch = METHODS[method]
    planned = list(
        islice(plans(iteration, capacity, rule, prefetch=prefetch), ITERATIONS)
    )
    ends = timeline(iteration, planned, bandwidth)
    count = ITERATIONS - WARM_UP
    nbytes = sum(moved(moves) for moves in planned[WARM_UP:])
    return (ends[-1] - ends[WARM_UP - 1]) / count, nbytes / count


def cyclic_rows(buffers: int) -> Iterator[Row]:
    """Yield fetches and seconds of an iteration that reads equal buffers in turn.

    An access and a fetch take a second each, so that the bound is the number of
    buffers. The reserve is the memory of one buffer.
    """
    names = [f"b{n}" for n in range(buffers)]
    iteration = Iteration(
        dict.fromkeys(names, 1), [Access(name, (name,), seconds=1.0) for name in names]
    )
    for capacity in sorted({1, 2, buffers // 2, buffers - 1, buffers}):
        row: Row = {"buffers": buffers, "capacity": capacity}
        for name, rule, reserve in CYCLIC:
            row |= {name: None, f"{name}_seconds": None}
            if capacity <= reserve:
                continue
            # the period of Belady's plan divides buffers - 1 iterations
            planned = list(
                islice(
                    plans(iteration, capacity, rule, reserve=reserve), 2 * buffers - 1
                )
            )
            ends, period = timeline(iteration, planned, 1.0), buffers - 1
            fetched = sum(map(moved, planned[buffers:]))
            row[name] = fetched / period
            row[f"{name}_seconds"] = (ends[-1] - ends[buffers - 1]) / period
        yield row
