"""The base of mpi4py's handles: several handles may refer to one object."""

from typing import Any, ClassVar, Self
from weakref import WeakValueDictionary

from dml.sim.mpi.constants import error

NAMED: dict[str, Any] = {}  # predefined handles, by name


class Handle:
    """A reference to an object of MPI; a handle without an object is null.

    Attributes:
      held: The object, or None.
      root: The class whose instances a constructor accepts.
      null_error: Class of the error of a call with a null handle.
    """

    root: ClassVar[Any] = None
    null_error: ClassVar[str] = "ERR_ARG"
    objects: ClassVar[Any] = WeakValueDictionary()  # by number
    held: Any = None
    named = ""  # of a predefined handle

    def __new__(cls, other: Any = None, *arguments: Any, **options: Any) -> Self:
        self = super().__new__(cls)
        if other is not None:
            if not isinstance(other, cls.root):
                raise TypeError(
                    f"expected a {cls.root.__name__}, got a {type(other).__name__}; "
                    "pass a handle"
                )
            self.held = other.held
        return self

    @classmethod
    def of(cls, held: Any) -> Any:
        """Return a handle of an object."""
        self = object.__new__(cls)
        self.held = held
        return self

    def need(self, call: str) -> Any:
        """Return the object; raise an error of MPI if the handle is null."""
        if self.held is None:
            raise error(
                self.null_error,
                f"{call}: expected a {self.root.__name__}, got a null handle; pass one "
                "that was not freed",
            )
        return self.held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle) or other.root is not self.root:
            return NotImplemented
        return self.held is other.held

    def __hash__(self) -> int:
        return hash(id(self.held))

    def __bool__(self) -> bool:
        return self.held is not None

    def __reduce__(self) -> Any:
        for name, handle in NAMED.items():
            if handle.held is self.held and handle.root is self.root:
                if handle is self:
                    return predefined, (name,)
                return type(self), (handle,)
        raise ValueError(
            f"expected a predefined {self.root.__name__} to pickle, got another"
        )

    @property
    def handle(self) -> int:
        if self.held is None:
            return 0
        Handle.objects[id(self.held)] = self.held
        return id(self.held)

    @classmethod
    def fromhandle(cls, handle: int) -> Self:
        self = object.__new__(cls)
        self.held = Handle.objects.get(handle) if handle else None
        return self

    def toint(self) -> int:
        return self.handle

    def py2f(self) -> int:
        return self.handle

    @classmethod
    def fromint(cls, number: int, /) -> Self:
        return cls.fromhandle(number)

    @classmethod
    def f2py(cls, number: int, /) -> Self:
        return cls.fromhandle(number)

    def free(self) -> None:
        """Free the object, unless the handle is null or predefined."""
        if self.held is not None and not any(
            handle.held is self.held for handle in NAMED.values()
        ):
            self.Free()

    def Free(self) -> None:
        self.need(f"{self.root.__name__}.Free")
        self.held = None


def predefined(name: str) -> Any:
    """Return a predefined handle by name."""
    return NAMED[name]


def name_handle(name: str, handle: Any) -> Any:
    """Add a predefined handle; return it."""
    NAMED[name] = handle
    handle.named = name
    return handle
