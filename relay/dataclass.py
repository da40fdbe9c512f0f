"""What relay uses of the standard library's dataclasses, at a tenth of the cost of making a class.

`dataclasses` compiles up to seven functions for each class, which takes 0.5 ms: a third of a session's start,
with its 280 classes. Here they share their methods except `__init__`, which is compiled when it is first
called. Type checkers see the standard library's, and its functions accept these classes, too.
"""

from __future__ import annotations

from _operator import attrgetter  # `operator` costs more

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from dataclasses import MISSING, asdict, dataclass, field, fields, replace
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")

__all__ = ["MISSING", "asdict", "dataclass", "field", "fields", "replace"]

_KNOWN, _COMPARED = "__fields_by_name__", "__compared__"


class _Missing:
    """The default of a field that has none."""


class _Field:
    """One field of a class, with attributes like those of `dataclasses.Field`."""

    def __init__(
        self,
        *,
        default: Any = _Missing,
        default_factory: Any = _Missing,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = self.type = ""
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only
        self.metadata: Mapping[str, Any] = metadata or {}


class _StandardFields:
    """The attribute of a class from which the standard library's functions learn its fields."""

    def __init__(self, known: Mapping[str, _Field], *, frozen: bool) -> None:
        self._known = known
        self._frozen = frozen

    def __get__(self, _: object, owner: type) -> Mapping[str, Any]:
        import dataclasses

        found: list[tuple[str, str, Any]] = []
        for name, each in self._known.items():
            given = {key: value for key, value in vars(each).items() if value is not _Missing}
            del given["name"], given["type"]
            found.append((name, each.type, dataclasses.field(**given)))
        made: Any = dataclasses.make_dataclass(owner.__name__, found, frozen=self._frozen)
        standard: Mapping[str, Any] = made.__dataclass_fields__
        return standard


class _Parameters:
    """The attribute of a class from which the standard library learns, for a subclass, what it may be."""

    def __init__(self, *, frozen: bool) -> None:
        self.frozen = frozen


def _dataclass(*, frozen: bool = False, slots: bool, eq: bool = True) -> Callable[[type], type]:
    """Return a decorator that makes a class a dataclass with slots."""
    methods: dict[str, Any] = {"__repr__": _repr, "__dataclass_params__": _Parameters(frozen=frozen)}
    if eq:
        methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
    if frozen:
        methods |= {"__setattr__": _set, "__delattr__": _delete}
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}

    def decorate(kind: type) -> type:
        known: dict[str, _Field] = {}
        for base in kind.__mro__[:0:-1]:
            known |= vars(base).get(_KNOWN, {})
        inherited = set(known)
        namespace = methods | vars(kind)
        for name, annotation in kind.__annotations__.items():
            if not annotation.startswith("ClassVar"):
                default = namespace.pop(name, _Missing)
                known[name] = each = default if type(default) is _Field else _Field(default=default)
                each.name, each.type = name, annotation
        namespace[_KNOWN] = known
        namespace["__dataclass_fields__"] = _StandardFields(known, frozen=frozen)
        compared = [name for name, each in known.items() if each.compare]
        namespace[_COMPARED] = attrgetter(*compared) if compared else type
        namespace["__match_args__"] = tuple(
            name for name, each in known.items() if each.init and not each.kw_only
        )
        namespace["__slots__"] = tuple(name for name in known if name not in inherited)
        namespace.pop("__dict__", None)
        namespace.pop("__weakref__", None)
        made: Any = type(kind)(kind.__name__, kind.__bases__, namespace)
        made.__qualname__ = kind.__qualname__
        if "__init__" not in namespace:

            def __init__(self: object, *args: object, **keywords: object) -> None:
                made.__init__ = init = _compile_init(made, known, frozen=frozen)
                init(self, *args, **keywords)

            made.__init__ = __init__
        decorated: type = made
        return decorated

    return decorate


def _compile_init(kind: type, known: Mapping[str, _Field], *, frozen: bool) -> Callable[..., None]:
    values: dict[str, Any] = {"_set": object.__setattr__, "_Missing": _Missing}
    positional, keywords, body = ["self"], ["*"], []
    for name, each in known.items():
        default, value = "", name
        if each.default_factory is not _Missing:
            values[f"_{name}_factory"] = each.default_factory
            default, value = "=_Missing", f"_{name}_factory()"
            if each.init:
                value += f" if {name} is _Missing else {name}"
        elif each.default is not _Missing:
            values[f"_{name}_default"] = each.default
            default = f"=_{name}_default"
            value = name if each.init else default[1:]
        if each.init:
            (keywords if each.kw_only else positional).append(name + default)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(positional + keywords[: len(keywords) if keywords[1:] else 0])
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), values)
    init: Callable[..., None] = values["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _fields(of: Any) -> tuple[_Field, ...]:
    return tuple(getattr(of, _KNOWN).values())


def _replace(instance: T, /, **changes: object) -> T:
    same = {each.name: getattr(instance, each.name) for each in _fields(instance) if each.init}
    return type(instance)(**same | changes)


def _asdict(instance: object) -> dict[str, Any]:
    return {each.name: _plain(getattr(instance, each.name)) for each in _fields(instance)}


def _plain(value: Any) -> Any:
    if hasattr(value, _KNOWN):
        return _asdict(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        plain = map(_plain, value)
        return type(value)(*plain) if hasattr(value, "_fields") else type(value)(plain)
    return value


def _eq(self: object, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    compared = getattr(self, _COMPARED)
    return compared(self) == compared(other)


def _hash(self: object) -> int:
    return hash(getattr(self, _COMPARED)(self))


def _repr(self: object) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in _fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set(self: object, name: str, value: object) -> NoReturn:
    _refuse("assign to", name)


def _delete(self: object, name: str) -> NoReturn:
    _refuse("delete", name)


def _refuse(what: str, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot {what} field {name!r}")


def _get_state(self: object) -> list[Any]:
    return [getattr(self, each.name) for each in _fields(self)]


def _set_state(self: object, state: list[Any]) -> None:
    for each, value in zip(_fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


if not TYPE_CHECKING:
    MISSING, field, fields, dataclass = _Missing, _Field, _fields, _dataclass
    replace, asdict = _replace, _asdict
