"""The audit log: who injected what into which agent, when, from which rule or message, with what result.

    Injector ─→ Entry ─→ AuditLog ─→ audit.jsonl, .1, .2 ...      (`relay audit` reads them)

It is a separate journal so busier events do not rotate it away; as in every journal (relay.storage.journal),
secrets are redacted.  An injection gets an entry when it is given or refused, and a second one if it was
uncertain and is confirmed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass, fields, replace
from relay.eventbus import EventBus
from relay.redaction import Redactor
from relay.storage import journal
from relay.storage.journal import Journal, preview

EVENT = "injection"

GENERATIONS = 9
"""Full files (relay.storage.journal.MAX_BYTES each) kept in addition to the current one."""

MAX_TEXT = 64 * 1024
"""Characters of the longest text kept whole: a longer one was refused for its size."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One injection and its result.

    The man page shows these lines (`make man`). Times are in seconds since the epoch. route, result, detail
    and verified are those of relay.injection.injection.Outcome.

    id:       the injection; for a message, the message's id.
    kind:     `message`, `hook`, `closing`, `notice`, `task` or `nudge`.
    source:   the sender of a message, or the handler or rule.
    time:     when it was decided.
    asked:    when the text was requested; 0 if unknown.
    session, name, team: the agent, and its session.
    hook_event: only of a hook: its event.
    place:    only of a rule: its file and line.
    channel:  only of a message that was sent to a channel.
    injection_size: bytes of UTF-8.
    tokens:   their approximate number.
    injection_role, delivered_role: only if known: the role requested, and the role delivered, such as `user`
              or `system`.
    route:    only if known: `typed`, `native` (in a hook's reply), `door`, `mcp` (by a tool) or `program`.
    result:   only if known: `injected`, `uncertain`, `rejected`, `withdrawn` (no longer needed) or `untyped`
              (the session ended first).
    detail:   only if known: why.
    verified: only if known: `echo` (the program read the echoed line), `hook` (the prompt hook reported the
              mark), `screen` (the input is empty again, or the agent works), `printed` (the client of the
              hook or tool delivered it), `record` (the transcript has it) or `agent` (its door says so).
    over_budget: whether this text made the hooks exceed `injection_budget` in this turn.
    text:     only if it is shown: the injected text, as far as it is kept.
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
    def failed(self) -> bool:
        """True if it was wanted but is not known to have reached the agent."""
        return self.result in {"rejected", "uncertain", "untyped"}

    def public(self) -> dict[str, Any]:
        """Return the fields for JSON, without those that do not apply."""
        given = {name: getattr(self, name) for name in _FIELDS}
        if self.kind == "hook":
            given["hook_name"] = self.source
        elif self.kind == "message":
            given |= {"message_id": self.id, "sender": self.source}
        return {key: value for key, value in given.items() if value not in ("", None)}


_FIELDS = tuple(field.name for field in fields(Entry))


class AuditLog:
    """Appends one session's entries, with whole texts if `full`, else previews. redactor: see Journal."""

    def __init__(
        self,
        path: Path,
        session: str,
        name: str,
        team: str,
        *,
        full: bool = False,
        bus: EventBus | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._journal = Journal(
            path, session, name, bus, generations=GENERATIONS, redactor=redactor or Redactor()
        )
        self._team = team
        self._full = full

    def write(self, entry: Entry) -> None:
        """Append `entry`. Raise nothing."""
        text = entry.text
        if text is not None and not (self._full and len(text) <= MAX_TEXT):
            text = preview(text)
        given = replace(entry, text=text, team=self._team).public()
        for key in ("time", "session", "name"):  # the journal's own
            given.pop(key, None)
        self._journal.write(EVENT, **given)


def read(path: Path, wanted: Callable[[Entry], bool] = lambda entry: True) -> Iterator[Entry]:
    """Yield the `wanted` entries, oldest first; each injection once, with its last result."""
    latest: dict[tuple[str, str], Entry] = {}
    for given in journal.read(path, GENERATIONS):
        if given.get("event") == EVENT and (entry := _entry(given)) is not None and wanted(entry):
            latest[entry.session, entry.id] = entry
    yield from latest.values()


_KINDS: dict[str, Any] = {field.name: str for field in fields(Entry)} | {"over_budget": bool}
_KINDS |= dict.fromkeys(("time", "asked", "injection_size", "tokens"), (int, float))


def _entry(given: dict[str, Any]) -> Entry | None:
    known = {key: value for key, value in given.items() if isinstance(value, _KINDS.get(key, ()))}
    try:
        return Entry(**known)
    except TypeError:
        return None
