"""Infos: dictionaries of texts."""

from collections.abc import Iterator, Mapping
from typing import Any

from dml.sim.mpi.constants import error
from dml.sim.mpi.handles import Handle, name_handle


class InfoObject(dict):
    """The object of an Info."""

    __slots__ = ("__weakref__",)


class Info(Handle):
    """An info of mpi4py, also a dictionary."""

    null_error = "ERR_INFO"

    @classmethod
    def Create(cls, items: Any = None) -> "Info":
        made = Info.of(InfoObject())
        if items is not None:
            pairs = items.items() if isinstance(items, Mapping | Info) else items
            made.held.update(pairs)
        return made

    @classmethod
    def Create_env(cls, args: Any = None) -> "Info":
        return Info.Create()

    def Dup(self) -> "Info":
        return Info.Create(self.need("Info.Dup"))

    def copy(self) -> "Info":
        return Info.Create(self.held or {})

    def Get(self, key: str) -> str | None:
        return self.need("Info.Get").get(key)

    def Set(self, key: str, value: str) -> None:
        self.need("Info.Set")[key] = value

    def Delete(self, key: str) -> None:
        if self.need("Info.Delete").pop(key, None) is None:
            raise error("ERR_INFO_NOKEY", f"Info.Delete: expected a key, got {key!r}")

    def Get_nkeys(self) -> int:
        return len(self.need("Info.Get_nkeys"))

    def Get_nthkey(self, n: int) -> str:
        keys = [*self.need("Info.Get_nthkey")]
        if not 0 <= n < len(keys):
            raise error("ERR_ARG", f"Info.Get_nthkey: expected 0 to {len(keys) - 1}")
        return keys[n]

    # A dictionary.

    def __len__(self) -> int:
        return len(self.held or ())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: str) -> bool:
        return key in (self.held or ())

    def __getitem__(self, key: str) -> str:
        if not self.held or key not in self.held:
            raise KeyError(key)
        return self.held[key]

    def __setitem__(self, key: str, value: str) -> None:
        if self.held is None:
            raise KeyError(key)
        self.Set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.Delete(key)

    def get(self, key: str, default: Any = None) -> Any:
        return (self.held or {}).get(key, default)

    def keys(self) -> list[str]:
        return [*(self.held or ())]

    def values(self) -> list[str]:
        return [*(self.held or {}).values()]

    def items(self) -> list[tuple[str, str]]:
        return [*(self.held or {}).items()]

    def update(self, items: Any = (), **keywords: str) -> None:
        if self.held is None:
            raise KeyError("INFO_NULL has no keys")
        pairs = items.items() if isinstance(items, Mapping | Info) else items
        self.held.update(pairs, **keywords)

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            return self.held.pop(key)
        if default:
            return default[0]
        raise KeyError(key)

    def popitem(self) -> tuple[str, str]:
        if not self.held:
            raise KeyError("an empty Info has no item")
        return self.held.popitem()

    def clear(self) -> None:
        if self.held is not None:
            self.held.clear()

    def __bool__(self) -> bool:
        return self.held is not None

    def __reduce__(self) -> Any:
        if self.named:
            return super().__reduce__()
        return (Info.Create, (self.items(),)) if self.held is not None else (Info, ())


Info.root = Info
name_handle("INFO_NULL", Info.of(None))
name_handle("INFO_ENV", Info.of(InfoObject()))
