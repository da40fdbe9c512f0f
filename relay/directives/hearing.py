"""The directives that a session hears, and those that earlier sessions of the agent heard.

A new session reads again what the agent has said. With another configuration it hears more: other namespaces,
directives that relay.toml excluded, another prefix. It does not act on those that were said before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from relay.agents.profile import Profile
from relay.dataclass import dataclass
from relay.directives.directive import Directive
from relay.place import TERMINAL, TRANSCRIPT
from relay.storage.progress import Begun, Progress

TWINS = 10.0
"""Seconds after the last replayed output in which directives may be ones that an earlier session acted on."""

_NOTE = "hears"


@dataclass(frozen=True, slots=True)
class Hearing:
    """The directives that a session acts on.

    namespaces: those with handlers. terminal: those that count where relay reads the agent's terminal.
    subagents:  a subagent's directives count, too.
    prefix:     what begins a directive. form: how the terminal's lines are told from others.
    """

    namespaces: frozenset[str]
    terminal: frozenset[str]
    subagents: bool
    prefix: str
    form: str

    @classmethod
    def of(
        cls,
        namespaces: Iterable[str],
        profile: Profile,
        *,
        acts_on: Callable[[str], bool],
        subagents: bool,
        prefix: str,
    ) -> Hearing:
        decoration = None if profile.decoration is None else profile.decoration.pattern
        form = repr((decoration, profile.block_end, bool(profile.states)))
        every = frozenset(namespaces)
        return cls(every, frozenset(filter(acts_on, every)), subagents, prefix, form)

    def hears(self, directive: Directive, now: Hearing) -> bool:
        """Return True if it acts on `directive`, which a session with the hearing `now` reads."""
        source = directive.place.source
        if source == TERMINAL:
            known = directive.namespace in self.terminal and self.form == now.form
        else:
            known = directive.namespace in self.namespaces
            known = known and (self.subagents or not source.startswith(f"{TRANSCRIPT}/"))
        return known and self.prefix == now.prefix

    def public(self) -> dict[str, Any]:
        """Return the JSON that `noted` reads."""
        lists = {"namespaces": sorted(self.namespaces), "terminal": sorted(self.terminal)}
        return {**lists, "subagents": self.subagents, "prefix": self.prefix, "form": self.form}

    @classmethod
    def noted(cls, note: dict[str, Any]) -> Hearing:
        namespaces, terminal = frozenset(note["namespaces"]), frozenset(note["terminal"])
        return cls(namespaces, terminal, note["subagents"], note["prefix"], note["form"])


class EarlierSessions:
    """The directives that earlier sessions of the agent heard, and those that they acted on.

    now:    the hearing of this session.
    joined: the bytes of the terminal's output that earlier ones have read.
    """

    def __init__(self, progress: Progress, now: Hearing, joined: int) -> None:
        self._progress = progress
        self._now = now
        self._joined = joined
        self._read_at = 0.0

    def begin(self) -> None:
        """Note what this session hears for the next one."""
        self.read()
        notes = self._notes()
        if not notes or Hearing.noted(notes[-1]) != self._now:
            self._progress.note(_NOTE, at=self._joined, **self._now.public())

    def read(self) -> None:
        """Take note that words which earlier sessions may have read were read just now."""
        self._read_at = time.monotonic()

    def heard(self, directive: Directive) -> bool:
        """Return True if the session of that time has heard `directive`, or nobody knows."""
        notes, place = self._notes(), directive.place
        if place.source == TERMINAL:
            notes = [note for note in notes if note["at"] < place.offset] or notes[:1]
        if not notes or str(place) in self._progress.earlier:
            return True
        return Hearing.noted(notes[-1]).hears(directive, self._now)

    def acted_on(self, directive: Directive, digest: str) -> tuple[str, Begun] | None:
        """Return what an earlier session began for `directive`, and its place then; None: nothing."""
        # The time is when it was read: acting on earlier directives may have taken long.
        if not self._progress.earlier or directive.time > self._read_at + TWINS:
            return None
        return self._progress.recognize(directive.place, digest)

    def _notes(self) -> list[dict[str, Any]]:
        return [note for note in self._progress.notes if note["note"] == _NOTE]
