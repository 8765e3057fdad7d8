"""Makers of frozen dataclasses that cost a part of what their own do. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from types import MemberDescriptorType
from typing import Any, ParamSpec, TypeVar

Kind = TypeVar("Kind", bound=type[Any])
Told = ParamSpec("Told")
Made = TypeVar("Made")


def made_quickly(kind: Kind) -> Kind:
    """Give a frozen dataclass a constructor that writes its fields without asking `__setattr__`.

    It takes the same arguments, and what it makes is as frozen: only the constructor writes
    directly, into slots or into the new object's `__dict__`. A class with fields that the
    constructor does not simply store keeps its own. Whoever makes very many asks for a `maker`.
    """
    names, old = _names_stored(kind), kind.__init__
    if names is None:
        return kind
    places = _slots_of(kind, names)
    known: dict[str, Any] = {}
    if places is None:
        lines = ["_fields = self.__dict__", *[f"_fields[{name!r}] = {name}" for name in names]]
    else:
        known = {f"_set_{name}": place.__set__ for name, place in zip(names, places, strict=True)}
        lines = [f"_set_{name}(self, {name})" for name in names]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    made = _function("__init__", old, lines, known, "self")
    made.__qualname__, made.__module__ = old.__qualname__, kind.__module__
    kind.__init__ = made
    return kind


def maker(kind: Callable[Told, Made]) -> Callable[Told, Made]:
    """Return a function that makes what a frozen dataclass does, at a third of its cost.

    It takes the same arguments. A call of a class packs them up and unpacks them again; this one
    writes them to an object of the same layout that is not frozen, which then becomes one of the
    class. Of a class for which that cannot be done, it is the class itself.
    """
    assert isinstance(kind, type)
    names = _names_stored(kind)
    places = None if names is None else _slots_of(kind, names)
    if names is None or (places is None and hasattr(kind, "__slots__")):
        return kind
    twin = type("Twin", (), {} if places is None else {"__slots__": tuple(names)})
    try:
        twin().__class__ = kind
    except TypeError:
        return kind
    lines = ["_made = _twin()", *[f"_made.{name} = {name}" for name in names]]
    lines.append("_made.__class__ = _kind")
    if hasattr(kind, "__post_init__"):
        lines.append("_made.__post_init__()")
    known = {"_twin": twin, "_kind": kind}
    old = vars(kind)["__init__"]
    made: Callable[Told, Made] = _function("made", old, [*lines, "return _made"], known)
    return made


def _names_stored(kind: type[Any]) -> list[str] | None:
    """Return the fields of a dataclass, if its constructor simply stores what it is told."""
    stored, code = fields(kind), kind.__init__.__code__
    names = [field.name for field in stored]
    told = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    if sorted(told) != sorted(names) or any(it.default_factory is not MISSING for it in stored):
        return None
    places = [isinstance(getattr(kind, name, None), MemberDescriptorType) for name in names]
    return names if all(places) or not any(places) else None


def _slots_of(kind: type[Any], names: list[str]) -> list[MemberDescriptorType] | None:
    """Return where the fields are written; None: into `__dict__`."""
    places = [getattr(kind, name, None) for name in names]
    slots = [place for place in places if isinstance(place, MemberDescriptorType)]
    return slots or None


def _function(name: str, like: Any, lines: list[str], known: dict[str, Any], *first: str) -> Any:
    """Return a function of some lines that takes what a constructor takes, with its defaults."""
    code = like.__code__
    told = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    by_place, by_name = told[: code.co_argcount - 1], told[code.co_argcount - 1 :]
    takes = ", ".join([*first, *by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def {name}({takes}):\n    " + "\n    ".join(lines), known)  # as dataclasses do
    made = known[name]
    made.__defaults__, made.__kwdefaults__ = like.__defaults__, like.__kwdefaults__
    made.__annotations__ = like.__annotations__
    return made
