"""The audit: who injected what into which agent, when, from which rule or message, and what became of it.

    Injector ─→ Entry ─→ AuditLog ─→ audit.jsonl, .1, .2 ...      (`relay audit` reads them)

It is a journal of its own, so that nothing busier pushes it out; as in every journal
(relay.storage.journal) secrets are taken out.  An injection has an entry when it is given or refused, and a
second one where what was uncertain has been seen to arrive after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from relay.redaction import Redactor
from relay.storage import journal
from relay.storage.journal import Journal, preview

EVENT = "injection"

GENERATIONS = 9
"""Full files (relay.storage.journal.MAX_BYTES each) that are kept beside the one that is written."""

MAX_TEXT = 64 * 1024
"""Characters of a text that is kept whole: what is larger was refused for its size."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One injection, and what became of it.

    time:     when that was known, in seconds since the epoch; asked: when it was asked for, 0 if unknown.
    session, name, team: into whom.
    id:       of the injection; of a message its own.
    kind:     message, hook, closing or notice (relay.injection.injection).
    source:   the sender of a message, or the handler or rule.
    hook_event, place: of a hook: the event, and the file and line of a rule.
    channel:  of a message.
    injection_size: bytes of UTF-8. tokens: about how many.
    injection_role, delivered_role: as whose words it was to be given, and was.
    route, result, detail, verified: relay.injection.injection.Outcome.
    over_budget: with it the hooks had injected more in this turn than injection_budget.
    text:     what it said; None where it is not shown.
    """

    id: str
    kind: str
    source: str
    time: float = 0.0
    asked: float = 0.0
    session: str = ""
    name: str = ""
    team: str = ""
    hook_event: str = ""
    place: str = ""
    channel: str = ""
    injection_size: int = 0
    tokens: int = 0
    injection_role: str = ""
    delivered_role: str = ""
    route: str = ""
    result: str = ""
    detail: str = ""
    verified: str = ""
    over_budget: bool = False
    text: str | None = None

    @property
    def hook_name(self) -> str:
        return self.source if self.kind == "hook" else ""

    @property
    def message_id(self) -> str:
        return self.id if self.kind == "message" else ""

    @property
    def sender(self) -> str:
        return self.source if self.kind == "message" else ""

    @property
    def failed(self) -> bool:
        """Whether it did not reach the agent for sure, though somebody wanted it to."""
        return self.result in {"rejected", "uncertain", "untyped"}

    def public(self) -> dict[str, Any]:
        """As JSON has it: without what does not apply."""
        named = {"hook_name": self.hook_name, "message_id": self.message_id, "sender": self.sender}
        return {key: value for key, value in (asdict(self) | named).items() if value not in ("", None)}


class AuditLog:
    """Appends entries of one session. `full`: whole texts; else previews of them. redactor: as of Journal."""

    def __init__(
        self,
        path: Path,
        session: str,
        name: str,
        team: str,
        *,
        full: bool = False,
        trouble: Callable[[str], None] = lambda text: None,
        redactor: Redactor | None = None,
    ) -> None:
        self._journal = Journal(path, session, name, trouble, generations=GENERATIONS, redactor=redactor)
        self._team = team
        self._full = full

    def write(self, entry: Entry) -> None:
        """Append `entry`; never raises."""
        text = entry.text
        if text is not None and not (self._full and len(text) <= MAX_TEXT):
            text = preview(text)
        given = replace(entry, text=text, team=self._team).public()
        for key in ("time", "session", "name"):  # the journal's own
            given.pop(key, None)
        self._journal.write(EVENT, **given)


def read(path: Path, wanted: Callable[[Entry], bool] = lambda entry: True) -> Iterator[Entry]:
    """Those entries that are `wanted`, oldest first; each injection once, as it ended."""
    latest: dict[tuple[str, str], Entry] = {}
    for given in journal.read(path, GENERATIONS):
        if given.get("event") == EVENT and (entry := _entry(given)) is not None and wanted(entry):
            latest[entry.session, entry.id] = entry
    yield from latest.values()


_NAMES = frozenset(field.name for field in fields(Entry))
_NUMBERS = frozenset({"time", "asked", "injection_size", "tokens"})


def _entry(given: dict[str, Any]) -> Entry | None:
    """`given` as an Entry; None if it is none."""
    known: dict[str, Any] = {
        key: value for key, value in given.items() if key in _NAMES and isinstance(value, _kind(key))
    }
    try:
        return Entry(**known)
    except TypeError:
        return None


def _kind(name: str) -> tuple[type, ...]:
    return (int, float) if name in _NUMBERS else (bool,) if name == "over_budget" else (str,)
