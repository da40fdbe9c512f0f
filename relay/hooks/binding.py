"""The binding of a handler: parameters are passed by name, like pytest's fixtures.

def deploy(target, message, ctx)        by name, in any order, any of them left out
def deploy(where, what, context)        unknown names get what is left of (target, message, ctx), in order
def greet(event, ctx), def f(sender, body, ctx), async def f(ctx)       the same for events and their fields
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.dataclass import dataclass
from relay.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Binding:
    """The argument for each parameter: first by position (a Parameter: its default), the rest by keyword."""

    positional: tuple[str | inspect.Parameter, ...]
    keywords: tuple[tuple[str, str], ...]

    def arguments(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the (args, kwargs) of one call; `values` holds every name that the binding was made for."""
        args = [values[item] if isinstance(item, str) else item.default for item in self.positional]
        return args, {parameter: values[name] for parameter, name in self.keywords}


def bind(
    function: Callable[..., Any], main: Sequence[str], fields: Sequence[str] = (), *, what: str = "a handler"
) -> Binding:
    """Bind `function` to the arguments `main`, which unknown names receive in order, and to `fields`.

    Raise ConfigError if a required parameter would get no value.
    """
    if not callable(function):
        raise ConfigError(f"{what} must be a function, not {function!r}.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ConfigError(
            f"relay cannot inspect the parameters of {name_of(function)}; wrap it in a function def "
            f"handler({', '.join(main)})."
        ) from None
    known = {**{name: name for name in (*main, *fields)}, "context": "ctx"}
    taken = {known[parameter.name] for parameter in parameters if parameter.name in known}
    # Next to a field's name, an unknown name is more likely a misspelled field than `event`.
    left = [] if taken & set(fields) else [name for name in main if name not in taken]
    positional: list[str | inspect.Parameter] = []
    keywords: list[tuple[str, str]] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += left
            left = []
            continue
        if parameter.name in known:
            name = known[parameter.name]
        elif parameter.default is not parameter.empty:
            if parameter.kind is not parameter.KEYWORD_ONLY:
                positional.append(parameter)
            continue
        elif left:
            name = left.pop(0)
        else:
            raise ConfigError(
                f"{what}: the parameter {parameter.name!r} of {name_of(function)} has no value to receive. "
                f"Use parameter names from: {', '.join((*main, *fields))}."
            )
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords.append((parameter.name, name))
        else:
            positional.append(name)
    return Binding(tuple(positional), tuple(keywords))


def name_of(function: object) -> str:
    """Return the name of `function` for a sentence."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition(".")[2]


def is_async(function: Callable[..., Any]) -> bool:
    """Return True if calling `function` returns a coroutine; an object may have an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (its kind is asked for, not its presence)
    )
