"""Attributes that programs cache on communicators, datatypes and windows."""

import sys
import traceback
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

from dml.sim.mpi.constants import ATTRIBUTES, CONSTANTS, error

NUMBERS = count(101)  # of keyvals
KEYVALS: dict[int, tuple[str, Any, Any, bool]] = {}  # kind, copy, delete, nopython


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of a keyval; write its exception."""
    try:
        return function(*arguments)
    except Exception as reason:
        traceback.print_exc(file=sys.stderr)
        text = f"a function of an attribute has raised {type(reason).__name__}"
        raise error("ERR_OTHER", text) from reason


class Attributed:
    """A handle whose object has `attributes`, by keyval."""

    kind: ClassVar[str] = ""
    held: Any

    def predefined_attributes(self) -> dict[int, Any]:
        return ATTRIBUTES if self.kind == "Comm" else {}

    @classmethod
    def Create_keyval(
        cls,
        copy_fn: Callable[..., Any] | bool | None = None,
        delete_fn: Callable[..., Any] | None = None,
        nopython: bool = False,
    ) -> int:
        """Return a new keyval; `copy_fn` may be True to copy values."""
        number = next(NUMBERS)
        KEYVALS[number] = (cls.kind, copy_fn, delete_fn, nopython)
        return number

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        KEYVALS.pop(keyval, None)
        return CONSTANTS["KEYVAL_INVALID"]

    def checked(self, call: str, keyval: int) -> Any:
        held = self.need(f"{self.kind}.{call}")  # type: ignore[attr-defined]
        known = keyval in self.predefined_attributes() or keyval in held.attributes
        if not known and KEYVALS.get(keyval, ("",))[0] != self.kind:
            raise error(
                "ERR_KEYVAL",
                f"{self.kind}.{call}: expected a keyval of Create_keyval, got {keyval}",
            )
        return held

    def Get_attr(self, keyval: int) -> Any:
        held = self.checked("Get_attr", keyval)
        if keyval in held.attributes:
            return held.attributes[keyval]
        return self.predefined_attributes().get(keyval)

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        held = self.checked("Set_attr", keyval)
        self.delete_attribute(keyval)
        held.attributes[keyval] = attrval

    def Delete_attr(self, keyval: int) -> None:
        self.checked("Delete_attr", keyval)
        self.delete_attribute(keyval)

    def delete_attribute(self, keyval: int) -> None:
        attributes = self.held.attributes
        if keyval in attributes:
            delete = KEYVALS.get(keyval, ("", None, None))[2]
            if delete is not None:
                called(delete, self, keyval, attributes[keyval])
            del attributes[keyval]

    def delete_attributes(self) -> None:
        for keyval in [*self.held.attributes]:
            self.delete_attribute(keyval)

    def copy_attributes(self, other: Any) -> None:
        """Copy the attributes whose keyval has a `copy_fn` to a duplicate."""
        for keyval, value in self.held.attributes.items():
            copy = KEYVALS.get(keyval, ("", None))[1]
            if copy is True:
                other.held.attributes[keyval] = value
            elif copy:
                made = called(copy, self, keyval, value)
                if made is not NotImplemented:
                    other.held.attributes[keyval] = made
