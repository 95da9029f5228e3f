"""The question of plan.py, its meshes, and the mesh that is explained."""

from typing import NamedTuple

import numpy as np

from dml.planner import calibration as calibrations
from dml.planner import runs, search
from dml.planner.devices import PUBLISHED
from dml.planner.execution import Conditions
from dml.planner.runs import Mesh, Runs
from dml.planner.search import Cluster, Plans
from dml.planner.shapes import Shape
from dml.types import BadInput

GIB = 2.0**30
STEP_TOKENS = 4 << 20  # default tokens of a step
AXES = ("tensor", "stage", "context", "data", "expert")
TEXTS = {  # of the devices without a network in their text
    "a100": "A100-80GB SXM",
    "a100_40gb": "A100-40GB SXM",
    "h100": "H100-80GB SXM",
    "h100_96gb": "H100-96GB (HBM2e, 500 W)",
    "h200": "H200-141GB SXM",
}


class Prices(NamedTuple):
    """Costs of a run in addition to the rent of its devices."""

    pue: float
    intensity: float  # kg of CO2 equivalent for a kWh
    failure_hours: float  # device-hours between failures
    checkpoint_rate: float  # GB/s of a node
    restart: float  # seconds


class Query(NamedTuple):
    """The question: which mesh, how long, how much."""

    model: str
    shape: Shape
    cluster: Cluster
    device: str
    batch: int
    tokens: float
    mesh: str
    best: int
    prices: Prices
    conditions: Conditions  # of an execution

    @property
    def calibration(self) -> calibrations.Calibration:
        """The packaged numbers."""
        return calibrations.load()


class Found(NamedTuple):
    """The answer."""

    query: Query
    plans: Plans
    pick: int  # index of the explained mesh

    @property
    def run(self) -> Runs:
        """The explained mesh as a run of numbers."""
        return runs.select(self.plans.table, self.pick)

    @property
    def mesh(self) -> Mesh:
        """The explained mesh."""
        return self.plans.mesh(self.pick)

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return float(self.plans.seconds[self.pick])


def kind(name: str) -> str:
    """Return the published text of a device, by which its constants are found."""
    begins = [begin for begin, device in PUBLISHED.items() if device == name]
    return TEXTS.get(name, begins[0] if begins else name)


def default_batch(shape: Shape) -> int:
    """Return the examples of a step of about 4 million tokens, a power of two."""
    return max(1, 2 ** round(np.log2(STEP_TOKENS / shape.sequence)))


def plans(query: Query) -> Plans:
    """Return all meshes; raise BadInput if none fits in memory."""
    found = search.plan(query.shape, query.cluster, query.batch, query.calibration)
    if not found.fits.any():
        raise BadInput(
            f"expected a mesh of {query.cluster.devices} devices that fits in "
            f"{query.cluster.device.memory:g} GiB, got none for {query.model}: "
            f"{search.nearest(found)}; pass more --devices or a smaller --sequence"
        )
    return found


def pick(query: Query, plans: Plans) -> int:
    """Return the index of the fastest mesh, or of the fastest one of --mesh."""
    order = plans.ranked()
    if not query.mesh:
        return int(order[0])
    sizes = read_mesh(query.mesh, query.cluster.devices)
    matches = np.ones(len(plans.seconds), bool)
    for name, size in sizes.items():
        matches &= getattr(plans.table, name) == size
    if not matches.any():
        raise BadInput(
            f"expected a mesh of {query.cluster.devices} devices that divides a batch "
            f"of {query.batch}, got --mesh={query.mesh}; see the table without --mesh"
        )
    fitting = [i for i in order if matches[i]]
    if fitting:
        return int(fitting[0])
    least = int(np.flatnonzero(matches)[np.argmin(plans.memory[matches])])
    raise BadInput(
        f"expected a mesh that fits in {query.cluster.device.memory:g} GiB, got "
        f"--mesh={query.mesh}, which needs {plans.memory[least] / GIB:.1f} GiB; pass "
        "larger axes of tensor or stage"
    )


def read_mesh(text: str, devices: int) -> dict[str, int]:
    """Return the sizes of axes; data fills the rest."""
    sizes = dict.fromkeys(AXES, 1)
    for word in text.split(","):
        name, colon, size = word.partition(":")
        if name not in AXES or not colon or not size.isdigit() or int(size) < 1:
            raise BadInput(
                f"expected --mesh as axis:size of {', '.join(AXES)}, got {text!r}; "
                "pass for instance tensor:8,stage:4"
            )
        sizes[name] = int(size)
    if "data" not in text:
        inner = sizes["tensor"] * sizes["stage"] * sizes["context"]
        sizes["data"] = max(1, devices // inner)
    return sizes
