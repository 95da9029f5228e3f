"""Error handlers, and codes of errors that programs add."""

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

from dml.sim.mpi.constants import NUMBERS, TEXTS, error
from dml.sim.mpi.handles import NAMED, Handle, name_handle

ADDED = count(NUMBERS["ERR_LASTCODE"] + 1)
CODES: dict[int, tuple[int, str]] = {}  # added codes: class and text


class HandlerObject:
    """The object of an error handler: its name, or a function of the program."""

    def __init__(self, name: str, function: Callable[..., Any] | None = None):
        self.name, self.function = name, function


class Errhandler(Handle):
    """An error handler of mpi4py. Virtual ranks always raise exceptions."""

    null_error = "ERR_ERRHANDLER"


Errhandler.root = Errhandler
for name in ("ERRORS_RETURN", "ERRORS_ARE_FATAL", "ERRORS_ABORT"):
    name_handle(name, Errhandler.of(HandlerObject(name)))
name_handle("ERRHANDLER_NULL", Errhandler.of(None))


class Errhandled:
    """A handle with an error handler."""

    ERRHANDLER: ClassVar[str] = ""
    held: Any

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Callable[..., Any]) -> Errhandler:
        return Errhandler.of(HandlerObject("", errhandler_fn))

    def Get_errhandler(self) -> Errhandler:
        held = self.need(f"{self.ERRHANDLER}.Get_errhandler")  # type: ignore[attr-defined]
        kept = held.errhandler
        return Errhandler.of(kept or NAMED["ERRORS_RETURN"].held)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        held = self.need(f"{self.ERRHANDLER}.Set_errhandler")  # type: ignore[attr-defined]
        held.errhandler = errhandler.need("Set_errhandler")

    def Call_errhandler(self, errorcode: int) -> None:
        """Call the function of an error handler; predefined ones do nothing."""
        held = self.need(f"{self.ERRHANDLER}.Call_errhandler")  # type: ignore[attr-defined]
        handler = held.errhandler
        if handler is not None and handler.function is not None:
            handler.function(self, errorcode)


def Get_error_class(errorcode: int) -> int:
    if errorcode in CODES:
        return CODES[errorcode][0]
    if errorcode not in TEXTS:
        raise error("ERR_ARG", f"Get_error_class: expected a code, got {errorcode}")
    return errorcode


def Get_error_string(errorcode: int) -> str:
    if errorcode in CODES:
        return CODES[errorcode][1]
    if errorcode not in TEXTS:
        raise error("ERR_ARG", f"Get_error_string: expected a code, got {errorcode}")
    return TEXTS[errorcode]


def Add_error_class() -> int:
    number = next(ADDED)
    CODES[number] = number, ""
    return number


def Add_error_code(errorclass: int) -> int:
    number = next(ADDED)
    CODES[number] = errorclass, ""
    return number


def Add_error_string(errorcode: int, string: str) -> None:
    if errorcode not in CODES:
        raise error(
            "ERR_ARG", f"Add_error_string: expected an added code, got {errorcode}"
        )
    CODES[errorcode] = CODES[errorcode][0], string


def Remove_error_class(errorclass: int) -> None:
    remove("Remove_error_class", errorclass)


def Remove_error_code(errorcode: int) -> None:
    remove("Remove_error_code", errorcode)


def Remove_error_string(errorcode: int) -> None:
    Add_error_string(errorcode, "")


def remove(call: str, code: int) -> None:
    if CODES.pop(code, None) is None:
        raise error("ERR_ARG", f"{call}: expected an added code, got {code}")
