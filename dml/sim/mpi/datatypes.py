"""Datatypes: the basic ones, and those derived from others."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from dml.sim.mpi import layouts
from dml.sim.mpi.attributes import Attributed
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.darray import darray, subarray
from dml.sim.mpi.handles import Handle
from dml.sim.mpi.layouts import DatatypeLayout

CODES: dict[str, Any] = {}  # predefined datatypes, by codes of NumPy
PREDEFINED: dict[int, Any] = {}  # predefined datatypes, by the id of their object


class Contents(NamedTuple):
    """How a datatype was made: a combiner, and mpi4py's arguments by name."""

    combiner: str
    arguments: dict[str, Any]
    datatypes: tuple["TypeObject", ...] = ()


class TypeObject:
    """A datatype: its layout, its name, and how it was made."""

    def __init__(self, layout: DatatypeLayout, contents: Contents, name: str = ""):
        self.layout, self.contents, self.name = layout, contents, name
        self.code: str | None = None  # of a basic type
        self.named = contents.combiner == "NAMED"
        self.attributes: dict[int, Any] = {}


class TypeHandle(Attributed, Handle):
    """A datatype of mpi4py, without the calls that pack messages."""

    null_error = "ERR_TYPE"
    kind = "Datatype"

    def Get_size(self) -> int:
        return self.need("Datatype.Get_size").layout.size

    def Get_extent(self) -> tuple[int, int]:
        layout = self.need("Datatype.Get_extent").layout
        return layout.lb, layout.extent

    def Get_true_extent(self) -> tuple[int, int]:
        layout = self.need("Datatype.Get_true_extent").layout
        return layout.true_lb, layout.true_ub - layout.true_lb

    size = property(Get_size)
    extent = property(lambda self: self.Get_extent()[1])
    lb = property(lambda self: self.Get_extent()[0])
    ub = property(lambda self: sum(self.Get_extent()))
    true_extent = property(lambda self: self.Get_true_extent()[1])
    true_lb = property(lambda self: self.Get_true_extent()[0])
    true_ub = property(lambda self: sum(self.Get_true_extent()))

    def Commit(self) -> Self:
        self.need("Datatype.Commit")
        return self

    def Free(self) -> None:
        if self.need("Datatype.Free").named:
            raise error("ERR_TYPE", "Datatype.Free: expected a derived datatype")
        self.delete_attributes()
        self.held = None

    def Get_name(self) -> str:
        return "MPI_DATATYPE_NULL" if self.held is None else self.held.name

    def Set_name(self, name: str) -> None:
        self.need("Datatype.Set_name").name = name

    name = property(Get_name, Set_name)

    # Derived types.

    def derive(
        self, combiner: str, layout: DatatypeLayout, *types: Any, **arguments: Any
    ):
        held = [datatype.need("Datatype.Create") for datatype in types or (self,)]
        contents = Contents(combiner, arguments, tuple(held))
        return TypeHandle.root.of(TypeObject(layout, contents))

    @property
    def layout(self) -> DatatypeLayout:
        return self.need("Datatype").layout

    def Dup(self) -> Any:
        made = self.derive("DUP", self.layout)
        made.held.code = self.held.code
        self.copy_attributes(made)
        return made

    def Create_dup(self) -> Any:
        return self.Dup()

    def Create_contiguous(self, count: int) -> Any:
        at_least_0("Create_contiguous", "count", count)
        layout = layouts.blocks([(0, count, self.layout)])
        return self.derive("CONTIGUOUS", layout, count=count)

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Any:
        made = self.strided(count, blocklength, stride * self.layout.extent)
        return self.derive(
            "VECTOR", made, count=count, blocklength=blocklength, stride=stride
        )

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Any:
        made = self.strided(count, blocklength, stride)
        return self.derive(
            "HVECTOR", made, count=count, blocklength=blocklength, stride=stride
        )

    def strided(self, count: int, blocklength: int, stride: int) -> DatatypeLayout:
        at_least_0("Create_vector", "count", count)
        at_least_0("Create_vector", "blocklength", blocklength)
        old = self.layout
        return layouts.blocks([(i * stride, blocklength, old) for i in range(count)])

    def Create_indexed(
        self, blocklengths: Sequence[int], displacements: Sequence[int]
    ) -> Any:
        return self.indexed("INDEXED", blocklengths, displacements)

    def Create_hindexed(
        self, blocklengths: Sequence[int], displacements: Sequence[int]
    ) -> Any:
        return self.indexed("HINDEXED", blocklengths, displacements)

    def indexed(self, combiner: str, lengths: Any, displacements: Any) -> Any:
        unit = 1 if combiner.startswith("H") else self.layout.extent
        displacements = [int(at) for at in displacements]
        if isinstance(lengths, int):
            lengths = [lengths] * len(displacements)
        lengths = [int(length) for length in lengths]
        if len(lengths) != len(displacements):
            raise ValueError(
                f"Datatype.Create_{combiner.lower()}: expected as many displacements "
                f"as blocklengths, got {len(displacements)} and {len(lengths)}"
            )
        for length in lengths:
            at_least_0(f"Create_{combiner.lower()}", "blocklength", length)
        old = self.layout
        parts = [
            (at * unit, n, old) for at, n in zip(displacements, lengths, strict=True)
        ]
        return self.derive(
            combiner,
            layouts.blocks(parts),
            blocklengths=lengths,
            displacements=displacements,
        )

    def Create_indexed_block(
        self, blocklength: int, displacements: Sequence[int]
    ) -> Any:
        return self.equal_blocks("INDEXED_BLOCK", blocklength, displacements)

    def Create_hindexed_block(
        self, blocklength: int, displacements: Sequence[int]
    ) -> Any:
        return self.equal_blocks("HINDEXED_BLOCK", blocklength, displacements)

    def equal_blocks(self, combiner: str, length: int, displacements: Any) -> Any:
        unit = 1 if combiner.startswith("H") else self.layout.extent
        at_least_0(f"Create_{combiner.lower()}", "blocklength", length)
        places = [int(at) for at in displacements]
        layout = layouts.blocks([(at * unit, length, self.layout) for at in places])
        return self.derive(combiner, layout, blocklength=length, displacements=places)

    @classmethod
    def Create_struct(
        cls,
        blocklengths: Sequence[int],
        displacements: Sequence[int],
        datatypes: Sequence[Any],
    ) -> Any:
        lengths, places = (
            [int(n) for n in blocklengths],
            [int(n) for n in displacements],
        )
        types = list(datatypes)
        if not len(lengths) == len(places) == len(types):
            raise ValueError(
                "Datatype.Create_struct: expected equally many blocklengths, "
                f"displacements and datatypes, got {len(lengths)}, {len(places)} and "
                f"{len(types)}"
            )
        held = [datatype.need("Datatype.Create_struct") for datatype in types]
        parts = [
            (at, n, one.layout)
            for at, n, one in zip(places, lengths, held, strict=True)
        ]
        layout = layouts.blocks(parts, pad=True)
        arguments = {"blocklengths": lengths, "displacements": places}
        return cls.root.of(
            TypeObject(layout, Contents("STRUCT", arguments, tuple(held)))
        )

    def Create_subarray(
        self,
        sizes: Sequence[int],
        subsizes: Sequence[int],
        starts: Sequence[int],
        order: int = CONSTANTS["ORDER_C"],
    ) -> Any:
        arguments: dict[str, Any] = {
            "sizes": [*map(int, sizes)],
            "subsizes": [*map(int, subsizes)],
            "starts": [*map(int, starts)],
            "order": order,
        }
        return self.derive("SUBARRAY", subarray(self.layout, **arguments), **arguments)

    def Create_darray(  # mpi4py's arguments
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = CONSTANTS["ORDER_C"],
    ) -> Any:
        arguments: dict[str, Any] = {"size": size, "rank": rank}
        axes = {"gsizes": gsizes, "distribs": distribs, "dargs": dargs}
        for name, values in (axes | {"psizes": psizes}).items():
            arguments[name] = [*map(int, values)]
        arguments["order"] = order
        return self.derive("DARRAY", darray(self.layout, **arguments), **arguments)

    def Create_resized(self, lb: int, extent: int) -> Any:
        layout = layouts.resized(self.layout, lb, extent)
        return self.derive("RESIZED", layout, lb=lb, extent=extent)

    Resized = Create_resized

    # How it was made.

    @property
    def is_named(self) -> bool:
        return self.combiner == CONSTANTS["COMBINER_NAMED"]

    @property
    def is_predefined(self) -> bool:
        return self.held is None or self.held.named or "F90" in self.contents_.combiner

    @property
    def contents_(self) -> Contents:
        return self.need("Datatype.Get_contents").contents

    def Get_contents(self) -> tuple[list, list, list, list]:
        combiner, arguments, types = self.contents_
        if combiner == "NAMED":
            raise error("ERR_TYPE", "Datatype.Get_contents: expected a derived type")
        integers: list[int] = []
        addresses: list[int] = []
        hold = combiner.startswith("H") or combiner in ("STRUCT", "RESIZED")
        if "displacements" in arguments:
            integers.append(len(arguments["displacements"]))
        if combiner in ("SUBARRAY", "DARRAY"):
            axes = arguments["sizes" if "sizes" in arguments else "gsizes"]
            head = [arguments["size"], arguments["rank"]] if "rank" in arguments else []
            integers += [*head, len(axes)]
            arguments = {
                k: v for k, v in arguments.items() if k not in ("size", "rank")
            }
        for name, value in arguments.items():
            far = hold and name in ("stride", "displacements", "lb", "extent")
            place = addresses if far else integers
            place += value if isinstance(value, list) else [value]
        given = [] if combiner.startswith("F90") else [self.handle_of(t) for t in types]
        return integers, addresses, [], given

    @staticmethod
    def handle_of(held: TypeObject) -> Any:
        return PREDEFINED.get(id(held)) or TypeHandle.root.of(held)

    def Get_envelope(self) -> tuple[int, int, int, int, int]:
        combiner = self.contents_.combiner
        number = CONSTANTS[f"COMBINER_{combiner}"]
        if combiner == "NAMED":
            return 0, 0, 0, 0, number
        i, a, c, d = (len(part) for part in self.Get_contents())
        return i, a, c, d, number

    envelope = property(Get_envelope)
    contents = property(Get_contents)
    combiner = property(lambda self: CONSTANTS[f"COMBINER_{self.contents_.combiner}"])

    def decode(self) -> tuple[Any, str, dict[str, Any]]:
        """Return the old type, the combiner and the arguments."""
        combiner, arguments, types = self.contents_
        if combiner == "NAMED":
            return self, combiner, {}
        arguments = dict(arguments)
        handles = [self.handle_of(held) for held in types]
        if combiner == "STRUCT":
            return TypeHandle.root, combiner, arguments | {"datatypes": handles}
        if combiner.startswith("F90"):
            return TypeHandle.root, combiner, arguments
        return handles[0], combiner, arguments

    def __reduce__(self) -> Any:
        if self.held is None or self.held.named:
            return super().__reduce__()
        old, combiner, arguments = self.decode()
        return rebuilt, (old, combiner, arguments)

    # Codes of NumPy.

    def tocode(self) -> str:
        held = self.held
        if held is None or held.code is None:
            raise ValueError(f"expected a basic datatype, got {self.Get_name()!r}")
        return held.code

    @classmethod
    def fromcode(cls, code: str) -> Any:
        try:
            return CODES[code]
        except KeyError:
            raise ValueError(f"expected a code of a datatype, got {code!r}") from None

    @property
    def typechar(self) -> str:
        basic = self.layout.basic
        if basic is None or self.held.code is None and self.held.named:
            return "V"
        return "c" if basic.char == "S" else basic.char

    @property
    def typestr(self) -> str:
        basic = self.layout.basic
        if basic is None or self.held.code is None and self.held.named:
            return f"V{self.layout.extent}"
        return "S1" if basic.char == "S" else basic.str[1:]


def at_least_0(call: str, what: str, number: int) -> None:
    if number < 0:
        raise error(
            "ERR_ARG",
            f"Datatype.{call}: expected a {what} of at least 0, got {number}",
        )


def rebuilt(old: Any, combiner: str, arguments: dict[str, Any]) -> Any:
    """Return an unpickled derived type."""
    if combiner == "DUP":
        return old.Dup()
    return getattr(old, f"Create_{combiner.lower()}")(**arguments)
