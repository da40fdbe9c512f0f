"""The handlers of a session: who handles a directive or an event, and in which order.

    built-in before user's → priority (higher first) → specificity of the pattern → registration

`override=True` on a user's handler takes the place of the built-in ones wherever it matches.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from relay import names
from relay.directives.directive import Directive
from relay.errors import ConfigError
from relay.hooks.binding import Binding, bind, is_async, name_of
from relay.hooks.events import EVENTS, Event, event_names

Function = Callable[..., Any]

_NAMESPACE = re.compile(r"[a-z][a-z0-9_-]*\Z")
PATTERN_ARGUMENTS = ("target", "message", "ctx")
EVENT_ARGUMENTS = ("event", "ctx")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which directives a handler is for: `deploy`, `deploy:staging`, or a glob such as `deploy:prod-*`."""

    namespace: str
    target: str | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        if not isinstance(text, str):
            raise ConfigError(f"a pattern is a string such as 'deploy' or 'deploy:prod-*', not {text!r}.")
        namespace, colon, target = text.strip().partition(":")
        namespace = namespace.lower()
        if not _NAMESPACE.match(namespace) or (colon and (not target or target != "".join(target.split()))):
            raise ConfigError(
                f"{text!r} is not a pattern. Write the namespace alone, like 'deploy' for @deploy:anything, "
                "or with a target, like 'deploy:staging' or 'deploy:prod-*'; without '@' and without spaces."
            )
        return cls(namespace, target if colon else None)

    def matches(self, directive: Directive) -> bool:
        """Names compare without case; in a pattern, `*` is any characters and `?` any one."""
        if directive.namespace != self.namespace:
            return False
        return self.target is None or fnmatchcase(names.key(directive.target), names.key(self.target))

    @property
    def specificity(self) -> tuple[int, int]:
        """Larger is more specific: an exact target, globs by their literal characters, no target."""
        if self.target is None:
            return (0, 0)
        literal = len(re.sub(r"[*?]", "", self.target))
        return (2 if literal == len(self.target) else 1, literal)

    def __str__(self) -> str:
        return f"@{self.namespace}" if self.target is None else f"@{self.namespace}:{self.target}"


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """One registered function.

    label:   what it handles, as shown to people: `@deploy:prod-*` or `on session_start`.
    body:    whether a directive without text is refused before the handler is called.
    """

    function: Function
    binding: Binding
    label: str
    builtin: bool = False
    override: bool = False
    priority: int = 0
    body: bool = False
    pattern: Pattern | None = None

    @property
    def name(self) -> str:
        return f"{name_of(self.function)} ({self.label})"

    @property
    def is_async(self) -> bool:
        return is_async(self.function)

    @property
    def place(self) -> tuple[Path | None, int | None]:
        """File and line (1-based) of the function's definition, where it has one."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return (None, None) if code is None else (Path(code.co_filename), code.co_firstlineno)


@dataclass(slots=True)
class Registry:
    """The handlers of one session. Filled before the session reads its first line; not thread-safe."""

    _patterns: list[Handler] = field(default_factory=list)
    _events: dict[str, list[Handler]] = field(default_factory=lambda: {name: [] for name in EVENTS})

    def add_pattern(
        self,
        pattern: str,
        function: Function,
        *,
        body: bool = True,
        override: bool = False,
        priority: int = 0,
        builtin: bool = False,
    ) -> None:
        """Register `function(target, message, ctx)` for `pattern`; ConfigError if that cannot be."""
        parsed = Pattern.parse(pattern)
        binding = bind(function, PATTERN_ARGUMENTS, what=f"the handler of {parsed}")
        self._patterns.append(
            Handler(function, binding, str(parsed), builtin, override, priority, body, parsed)
        )

    def add_event(self, event: str, function: Function, *, priority: int = 0, builtin: bool = False) -> None:
        """Register `function(event, ctx)` for `event` (any spelling that `event_names` takes)."""
        for name in event_names(event):
            label = f"on {name}"
            binding = bind(function, EVENT_ARGUMENTS, EVENTS[name].field_names(), what=f"the handler {label}")
            self._events[name].append(Handler(function, binding, label, builtin=builtin, priority=priority))

    def include(self, other: Registry) -> None:
        """Register everything that `other` has, after what is here already."""
        self._patterns += other._patterns
        for name, handlers in other._events.items():
            self._events[name] += handlers

    def knows(self, namespace: str) -> bool:
        """Whether `@namespace:` is a directive at all, for the grammar."""
        namespace = namespace.lower()
        return any(handler.pattern and handler.pattern.namespace == namespace for handler in self._patterns)

    def has_builtin(self, namespace: str) -> bool:
        return any(
            h.builtin for h in self._patterns if h.pattern and h.pattern.namespace == namespace.lower()
        )

    def targets(self, namespace: str) -> list[str]:
        """The targets that handlers of `namespace` name, for telling a sender what would have matched."""
        return [
            h.pattern.target or "*" for h in self._patterns if h.pattern and h.pattern.namespace == namespace
        ]

    def for_directive(self, directive: Directive) -> list[Handler]:
        """The handlers of `directive`, in the order in which they run."""
        found = [h for h in self._patterns if h.pattern and h.pattern.matches(directive)]
        if any(handler.override for handler in found):
            found = [handler for handler in found if not handler.builtin]
        return sorted(found, key=_order)

    def for_event(self, event: Event | type[Event]) -> list[Handler]:
        """The handlers of `event`, in the order in which they run."""
        return sorted(self._events[event.name], key=_order)

    def handlers(self) -> list[Handler]:
        """Every handler, for listing."""
        return [*self._patterns, *(handler for group in self._events.values() for handler in group)]


def _order(handler: Handler) -> tuple[bool, int, int, int]:
    rank, literal = handler.pattern.specificity if handler.pattern else (0, 0)
    return (not handler.builtin, -handler.priority, -rank, -literal)  # sorted() keeps registration order


@dataclass(frozen=True, slots=True)
class Registration:
    """Where the module-level decorators put what they decorate."""

    registry: Registry
    builtin: bool = False


_registration: ContextVar[Registration | None] = ContextVar("relay_registration", default=None)


@contextmanager
def registering(registry: Registry, *, builtin: bool = False) -> Iterator[None]:
    """Within it, `relay.pattern` and `relay.on` register into `registry`."""
    token = _registration.set(Registration(registry, builtin))
    try:
        yield
    finally:
        _registration.reset(token)


def registration(decorator: str) -> Registration:
    """The registration in progress; ConfigError, naming `decorator`, where there is none."""
    current = _registration.get()
    if current is None:
        raise ConfigError(
            f"@{decorator} works while relay loads a relay.config.py. In a program of your own, make a "
            f"relay.Relay(name=...) and use its .{decorator}()."
        )
    return current
