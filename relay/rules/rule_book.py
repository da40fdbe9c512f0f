"""The rules in force: the files they come from, their order, and the selection for an event.

CONFIG/hooks.json ─┐
project's, trusted ├─ parse ─→ RuleBook.rules ─ select(event) ─→ the rules to run, in firing order
--rules FILE       ─┘

A session that reloads its files keeps the rules it has from a file that cannot be read as a whole, or is no
longer trusted: a mistake in the file, or an agent that writes to it, must not remove the guards.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, field, replace
from relay.errors import HomeError
from relay.home import Home
from relay.hooks.trust import Trust
from relay.rules.event import RuleEvent
from relay.rules.matcher import Undecided
from relay.rules.rule import Origin, Rule, RuleWarning
from relay.rules.rule_file import LARGEST, parse
from relay.settings import nearest
from relay.storage.files import open_regular, rewrite
from relay.text import count, one_line

FILE = "hooks.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleSource:
    """The content of a file of rules, as it was used."""

    path: Path
    origin: Origin
    content: bytes


@dataclass(frozen=True, slots=True)
class RuleBook:
    """The rules of all files together, in firing order; `disabled` has the ids of disabled rules.

    sources: where the rules come from, which may be an earlier content of a file.
    """

    rules: tuple[Rule, ...] = ()
    warnings: tuple[RuleWarning, ...] = ()
    disabled: frozenset[str] = frozenset()
    sources: tuple[RuleSource, ...] = ()
    _warned: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def load(
        cls, home: Home, directory: Path, named: Sequence[Path] = (), last: RuleBook | None = None
    ) -> RuleBook:
        """Return the rules for an agent in `directory`: the user's, the project's, those of files `named`.

        The project's file counts only if it is trusted. Mistakes are in `warnings`.

        last: the rules in force so far; relay keeps those of a file that it cannot use now.
        """
        book = _Loading(home, last)
        own = home.config / FILE
        if os.path.lexists(own):
            book.add(own, "user")
        project = find(directory)
        named = [path.absolute() for path in named]
        if project is not None and not any(_same(project, path) for path in (own, *named)):
            book.add(project, "project")
        for path in named:
            book.add(path, "named")
        return book.done()

    @classmethod
    def again(cls, sources: Iterable[RuleSource]) -> RuleBook:
        """Return the rules that an earlier session had from these sources."""
        rules = [rule for each in sources for rule in parse(each.path, each.content, each.origin)[0]]
        return cls(tuple(rules), sources=tuple(sources))

    @property
    def kept(self) -> tuple[str, ...]:
        """The warnings about files that relay cannot use now, so that their former rules stay in force."""
        return tuple(str(warning) for warning in self.warnings if warning.stays)

    @classmethod
    def of(cls, home: Home, named: Sequence[Path]) -> RuleBook:
        """Return the rules of the files `named`, and no others."""
        book = _Loading(home)
        for path in named:
            book.add(path.absolute(), "named")
        return book.done()

    def switched(self, home: Home) -> RuleBook:
        """Return the same rules with `disabled` read again; read no rule file."""
        others = [warning for warning in self.warnings if warning.path != home.disabled_rules]
        ids, problem = _off(home)
        return replace(self, disabled=ids, warnings=(*others, *problem))

    def enabled(self, rule: Rule) -> bool:
        return rule.id not in self.disabled

    def select(self, event: RuleEvent, tell: Callable[[str], None] = _log.warning) -> list[Rule]:
        """Return the rules to run for `event`, in firing order; identical ones once.

        A background rule decides nothing, so it never replaces one that the event waits for.

        A rule whose matcher cannot decide is included, since a long text must not bypass a guard; call `tell`
        with a text about it, once for each rule. Only such a match takes long: up to
        relay.rules.matcher.MATCH_TIMEOUT for each name of a tool, without the GIL.
        """
        chosen: dict[object, Rule] = {}
        for rule in self.rules:
            work = (rule.work, rule.background)
            if rule.event != event.name or not self.enabled(rule) or work in chosen:
                continue
            if self._matches(rule, event, tell):
                chosen[work] = rule
        return list(chosen.values())

    def _matches(self, rule: Rule, event: RuleEvent, tell: Callable[[str], None]) -> bool:
        try:
            return rule.matcher.matches(event)
        except Undecided as error:
            if rule.id not in self._warned:
                self._warned.add(rule.id)
                tell(f"{rule.place}: {rule.event}: {error} The rule runs, because it may be intended.")
            return True

    def public(self) -> dict[str, Any]:
        """Return `{"rules": [...], "warnings": [TEXT, ...]}` for JSON."""
        return {
            "rules": [public(rule) | {"enabled": self.enabled(rule)} for rule in self.rules],
            "warnings": [str(warning) for warning in self.warnings],
        }


def public(rule: Rule) -> dict[str, Any]:
    """Return a rule for JSON; `what` is the start of its command or prompt, `timeout` is in seconds."""
    return {
        "id": rule.id,
        "name": rule.name,
        "event": rule.event,
        "type": rule.kind,
        "shape": rule.shape,
        "matcher": one_line(str(rule.matcher), 200),
        "what": one_line(" ".join((rule.command or rule.prompt, *(rule.args or ()))), 200),
        "timeout": rule.timeout,
        "async": rule.background,
        "file": str(rule.path),
        "line": rule.line,
        "origin": rule.origin,
    }


def find(directory: Path) -> Path | None:
    """Return the nearest hooks.json (`settings.nearest`), even one that cannot be read."""
    return nearest(directory, FILE, os.path.lexists)


class _Loading:
    """A book being loaded; `last` is the previous one."""

    def __init__(self, home: Home, last: RuleBook | None = None) -> None:
        self._home = home
        self._last = () if last is None else last.rules
        self._former = () if last is None else last.sources
        self._rules: list[Rule] = []
        self._sources: list[RuleSource] = []
        self._warnings: list[RuleWarning] = []
        self._seen: list[Path] = []

    def add(self, path: Path, origin: Origin) -> None:
        """Add the rules of `path`, unless it has been read, or is an untrusted project's."""
        if any(_same(path, each) for each in self._seen):
            return
        self._seen.append(path)
        rules, warnings = self._taken(path, origin)
        unread = any(warning.unread for warning in warnings) and any(self._former_of(path, origin))
        skipped = any(warning.skipped for warning in warnings)
        if unread or (skipped and any(rule.path == path for rule in self._last)):
            self._sources = [each for each in self._sources if each.path != path]
            rules = self._keep(path, origin)
            warnings = [replace(each, text=f"{each.text} {_STAY}", stays=True) for each in warnings]
        self._rules += rules
        self._warnings += warnings

    def _taken(self, path: Path, origin: Origin) -> tuple[list[Rule], list[RuleWarning]]:
        try:
            content = _read(path, LARGEST + 1)
        except OSError as error:
            text = f"cannot be read: {error.strerror}. Make it readable."
            return [], [RuleWarning(path, text, unread=not isinstance(error, FileNotFoundError))]
        if origin != "project" or len(content) > LARGEST or Trust(self._home).covers(path, content):
            rules, warnings = parse(path, content, origin)
            if rules:
                self._sources.append(RuleSource(path, origin, content))
            return rules, warnings
        command = f"`relay trust {shlex.quote(str(path))}` and `relay hooks reload`"
        if kept := self._keep(path, origin):
            return kept, [
                RuleWarning(
                    path, f"is not trusted in its current form. {_STAY} Read it, then {command}.", stays=True
                )
            ]
        text = f"is not trusted, so none of its rules applies. Read it, then {command}."
        return [], [RuleWarning(path, text)]

    def _former_of(self, path: Path, origin: Origin) -> list[Rule]:
        """Return the last rules in place of those in `path`; a project's may come from a file further up."""
        if origin == "project":
            return [rule for rule in self._last if rule.origin == origin]
        return [rule for rule in self._last if rule.path == path]

    def _keep(self, path: Path, origin: Origin) -> list[Rule]:
        """Return the same, and keep the sources that they come from."""
        rules = self._former_of(path, origin)
        paths = {rule.path for rule in rules}
        self._sources += [each for each in self._former if each.path in paths]
        return rules

    def done(self) -> RuleBook:
        now = {rule.path for rule in self._rules}
        for path in dict.fromkeys(rule.path for rule in self._last if rule.path not in now):
            lost = count(sum(rule.path == path for rule in self._last), "rule")
            why = "no longer has rules" if path in self._seen else "is no longer the nearest"
            if not os.path.lexists(path):
                why = "is gone"
            text = f"{why}. No longer active: {lost} that this session had loaded from it."
            self._warnings.append(RuleWarning(path, text))
        ids, problem = _off(self._home)
        return RuleBook(tuple(self._rules), (*self._warnings, *problem), ids, tuple(self._sources))


_STAY = "The rules that were loaded from it before stay in force."


def disabled(home: Home) -> frozenset[str]:
    """Return the ids of the rules that the user has disabled, for all sessions of `home`.

    Raise HomeError if their file, `{"disabled": [ID, ...]}`, cannot be read: then no rule is disabled.
    """
    path = home.disabled_rules
    try:
        ids = json.loads(path.read_bytes())["disabled"]
        if not all(isinstance(each, str) for each in ids):
            raise TypeError
        return frozenset(ids)
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise HomeError(
            f"{path} cannot be read, so every rule is on. Delete it, then disable rules again."
        ) from None


def switch(home: Home, ids: Iterable[str], *, off: bool) -> None:
    """Disable or enable rules. Raise HomeError if that fails."""
    chosen = frozenset(ids)

    def text() -> str:
        now = disabled(home) | chosen if off else disabled(home) - chosen
        return json.dumps({"disabled": sorted(now)}, indent=2) + "\n"

    rewrite(home.disabled_rules, text)


def _off(home: Home) -> tuple[frozenset[str], list[RuleWarning]]:
    """Return the ids of the disabled rules, and a warning if they cannot be read."""
    try:
        return disabled(home), []
    except HomeError as error:
        return frozenset(), [RuleWarning(home.disabled_rules, str(error))]


def _read(path: Path, most: int) -> bytes:
    """Return at most `most` bytes of a regular file. Raise OSError for anything else."""
    with open(open_regular(path), "rb") as stream:
        return stream.read(most)


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
