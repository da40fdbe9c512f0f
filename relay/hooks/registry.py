"""The registry of handlers: finds the handlers for a directive or an event, in the order they run.

    built-in before user's → priority (higher first) → specificity of the pattern → registration

A user's handler with `override=True` replaces the built-in ones wherever it matches.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from relay import names
from relay.dataclass import dataclass, field
from relay.directives.directive import Directive
from relay.errors import ConfigError
from relay.hooks.binding import Binding, bind, name_of
from relay.hooks.events import EVENTS, HandlerEvent, event_names

Function = Callable[..., Any]

_NAMESPACE = re.compile(r"[a-z][a-z0-9_-]*\Z")
PATTERN_ARGUMENTS = ("target", "message", "ctx")
EVENT_ARGUMENTS = ("event", "ctx")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The directives that a handler takes: `deploy`, `deploy:staging`, or a glob such as `deploy:prod-*`."""

    namespace: str
    target: str | None = None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Return the pattern in `text`. Raise ConfigError."""
        if not isinstance(text, str):
            raise ConfigError(
                f"a pattern must be a string such as 'deploy' or 'deploy:prod-*', not {text!r}."
            )
        namespace, colon, target = text.strip().partition(":")
        namespace = namespace.lower()
        if not _NAMESPACE.match(namespace) or (colon and (not target or target != "".join(target.split()))):
            raise ConfigError(
                f"{text!r} is not a pattern. Write the namespace alone, like 'deploy' for @deploy:anything, "
                "or with a target, like 'deploy:staging' or 'deploy:prod-*'; without '@' and without spaces."
            )
        return cls(namespace, target if colon else None)

    def matches(self, directive: Directive) -> bool:
        """Return True if the handler takes `directive`, ignoring case; `*` and `?` are wildcards."""
        if directive.namespace != self.namespace:
            return False
        return self.target is None or fnmatchcase(names.key(directive.target), names.key(self.target))

    @property
    def specificity(self) -> tuple[int, int]:
        """The rank, larger if more specific: no target, globs by their literal characters, exact targets."""
        if self.target is None:
            return (0, 0)
        literal = len(re.sub(r"[*?]", "", self.target))
        return (2 if literal == len(self.target) else 1, literal)

    def __str__(self) -> str:
        return f"@{self.namespace}" if self.target is None else f"@{self.namespace}:{self.target}"


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """One registered function.

    label:   the directives or the event that it handles: `@deploy:prod-*` or `on session_start`.
    body:    a directive without text is refused before the handler is called.
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
    def place(self) -> tuple[Path | None, int | None]:
        """The file and line (1-based) of the function's definition; None if it has none."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return (None, None) if code is None else (Path(code.co_filename), code.co_firstlineno)


@dataclass(slots=True)
class Registry:
    """The handlers of one session. Fill it before the session reads its first line; it is not thread-safe.

    builtin: the handlers that are added here are relay's own.
    """

    builtin: bool = False
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
    ) -> None:
        """Register `function(target, message, ctx)` for `pattern`. Raise ConfigError if it does not fit."""
        parsed = Pattern.parse(pattern)
        binding = bind(function, PATTERN_ARGUMENTS, what=f"the handler of {parsed}")
        self._patterns.append(
            Handler(function, binding, str(parsed), self.builtin, override, priority, body, parsed)
        )

    def add_event(self, event: str, function: Function, *, priority: int = 0) -> None:
        """Register `function(event, ctx)` for `event`, in any spelling that `event_names` takes.

        Raise ConfigError if it does not fit.
        """
        for name in event_names(event):
            label = f"on {name}"
            binding = bind(function, EVENT_ARGUMENTS, EVENTS[name].field_names(), what=f"the handler {label}")
            handler = Handler(function, binding, label, builtin=self.builtin, priority=priority)
            self._events[name].append(handler)

    def include(self, other: Registry) -> None:
        """Register everything in `other` after what is here."""
        self._patterns += other._patterns
        for name, handlers in other._events.items():
            self._events[name] += handlers

    def knows(self, namespace: str) -> bool:
        """Return True if `@namespace:` begins a directive."""
        return bool(self._handlers_of(namespace))

    def namespaces(self) -> frozenset[str]:
        return frozenset(handler.pattern.namespace for handler in self._patterns if handler.pattern)

    def meant(self, namespace: str) -> str:
        """Return the namespace that an unknown one is probably a typo of; "" for any other word.

        Much that begins like a directive is none: `@param:x`, `@media:print`. Typos keep the first letter.
        """
        found = names.suggest(namespace, self.namespaces(), 0.8) or ""
        return found if found[:1] == namespace[:1].lower() else ""

    def has_builtin(self, namespace: str) -> bool:
        return any(handler.builtin for handler in self._handlers_of(namespace))

    def targets(self, namespace: str) -> list[str]:
        """Return the targets of the handlers of `namespace`, to show what would have matched."""
        return [h.pattern.target or "*" for h in self._handlers_of(namespace) if h.pattern]

    def _handlers_of(self, namespace: str) -> list[Handler]:
        return [h for h in self._patterns if h.pattern and h.pattern.namespace == namespace.lower()]

    def for_directive(self, directive: Directive) -> list[Handler]:
        """Return the handlers of `directive`, in the order in which they run."""
        found = [h for h in self._patterns if h.pattern and h.pattern.matches(directive)]
        if any(handler.override for handler in found):
            found = [handler for handler in found if not handler.builtin]
        return sorted(found, key=_order)

    def for_event(self, event: HandlerEvent | type[HandlerEvent]) -> list[Handler]:
        """Return the handlers of `event`, in the order in which they run."""
        return sorted(self._events[event.name], key=_order)

    def handlers(self) -> list[Handler]:
        return [*self._patterns, *(handler for group in self._events.values() for handler in group)]


def _order(handler: Handler) -> tuple[bool, int, int, int]:
    rank, literal = handler.pattern.specificity if handler.pattern else (0, 0)
    return (not handler.builtin, -handler.priority, -rank, -literal)  # sorted() keeps registration order


_registry: ContextVar[Registry | None] = ContextVar("relay_registry", default=None)


@contextmanager
def registering(registry: Registry) -> Iterator[None]:
    """Make `relay.pattern` and `relay.on` register in `registry` during a block."""
    token = _registry.set(registry)
    try:
        yield
    finally:
        _registry.reset(token)


def current(decorator: str) -> Registry:
    """Return the registry that is being filled. Raise ConfigError, naming `decorator`, if there is none."""
    registry = _registry.get()
    if registry is None:
        raise ConfigError(
            f"@{decorator} works while relay loads a relay.config.py. In your own program, make a "
            f"relay.Relay(name=...) and use its .{decorator}()."
        )
    return registry
