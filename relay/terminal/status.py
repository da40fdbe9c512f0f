"""Status reports of programs: OSC 7501, the Program Status Protocol, revision 0.4.

    ESC ] 7501 ; key=value[:key=value...] ST

A report replaces the whole record of its id.  Reports are untrusted text: they are shown through
`relay.text.visible`, and authorize nothing.  relay.shim.query handles the query.
"""

from __future__ import annotations

import binascii
import re
import unicodedata

from relay.dataclass import dataclass

MAX_REPORT = 4096
"""Bytes of a report, including its introducer and terminator."""

MAX_RECORDS, MAX_LEVELS, MAX_ID = 256, 8, 128
MAX_APP, MAX_TITLE, MAX_MSG = 32, 192, 2048
"""Records; levels and bytes of an id; bytes of `app`, and of the decoded `title` and `msg`."""

STATES = frozenset({"idle", "working", "blocked", "done", "error", "clear"})
KINDS = frozenset({"permission", "question", "auth"})

_KEY = re.compile(rb"[a-z]{1,16}")
_VALUE = re.compile(rb"[A-Za-z0-9_.,+/=-]*")
_APP = re.compile(rb"[A-Za-z0-9_.+-]+")
_START = b"7501;"

_SIGNIFICANT = re.compile(
    rb"\x1b(?:(?P<ris>c)|\](?:(?P<prompt>133;A)[;\a\x1b]|(?P<report>7501;[ -~]*)(?:\a|\x1b\\)))"
)
# The start of one of these, which the next piece of output may complete.
_UNFINISHED = re.compile(rb"\x1b(?:\](?:[0-9]{0,4}|133;A?|7501;[ -~]*\x1b?))?\Z")

# relay's states in the protocol's terms.
_NAMES = {
    "starting": "working",
    "working": "working",
    "ready": "idle",
    "prompting": "blocked",
    "unsafe": "idle",
    "stopped": "idle",
    "failed": "error",
    "ending": "clear",
}
_PROMPTS = {"permission": "permission", "plan_approval": "permission", "question": "question"}


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """A program's last report on one of its activities.

    id:       segments joined by `/`; "" is the root record.
    state:    one of STATES except clear.
    kind:     permission, question or auth if a blocked program reports it, else "".
    progress: percent, or None.
    app, title, msg: untrusted text, "" if missing.
    time:     seconds, on the clock of the caller of `feed`.
    """

    id: str
    state: str
    kind: str
    progress: int | None
    app: str
    title: str
    msg: str
    time: float


class StatusRecords:
    """The records of one agent's terminal."""

    def __init__(self) -> None:
        self._records: dict[str, StatusRecord] = {}  # least recently updated first
        self._open = b""

    def feed(self, data: bytes, now: float) -> bool:
        """Process the reports, prompts (OSC 133 A) and resets (RIS) in the agent's output.

        Return True if there was a valid report.
        """
        if not self._open and b"\x1b" not in data:
            return False
        data = self._open + data
        reported = False
        end = 0
        for found in _SIGNIFICANT.finditer(data):
            end = found.end() - (found["prompt"] is not None)  # a prompt's last character may start the next
            if found["report"] is not None:
                reported = self.report(found["report"], now) or reported
            elif found["prompt"] is not None:
                self.prompt_started()
            else:
                self._records.clear()
        unfinished = _UNFINISHED.search(data, max(end, len(data) - MAX_REPORT))
        self._open = unfinished[0] if unfinished else b""
        return reported

    def report(self, content: bytes, now: float) -> bool:
        """Process one report, from its number up to its terminator; return True if it is valid.

        Malformed pairs and unknown keys are ignored; an exceeded limit, an unknown state, bad base64 or a
        control character in a text makes the report invalid.
        """
        if not content.startswith(_START) or len(content) + 4 > MAX_REPORT:
            return False
        try:
            record = _parse(content[len(_START) :], now)
        except ValueError:
            return False
        if record.state == "clear":
            self._clear(record.id)
            return True
        self._records.pop(record.id, None)
        self._records[record.id] = record
        if len(self._records) > MAX_RECORDS:
            del self._records[next(iter(self._records))]
        return True

    def root(self) -> StatusRecord | None:
        return self._records.get("")

    def all(self) -> tuple[StatusRecord, ...]:
        """Return the records, least recently updated first."""
        return tuple(self._records.values())

    def prompt_started(self) -> None:
        """Drop the working and blocked records: a shell prompt (OSC 133 A) means the program has ended."""
        for id in [id for id, record in self._records.items() if record.state in {"working", "blocked"}]:
            del self._records[id]

    def _clear(self, id: str) -> None:
        """Remove a record and those below it; all records are below the root."""
        for each in list(self._records):
            if not id or each == id or each.startswith(f"{id}/"):
                del self._records[each]


def report(state: str, kind: str = "", app: str = "relay") -> bytes:
    """Return the root report of an agent in `state` (a name of `AgentState`).

    kind: of the prompt, as in `PromptKind`. app: the reporter; omitted if not a valid program name.
    """
    pairs = [f"state={_NAMES.get(state, 'idle')}"]
    if pairs[0] == "state=blocked" and kind in _PROMPTS:
        pairs.append(f"kind={_PROMPTS[kind]}")
    if _APP.fullmatch(app.encode()) and len(app) <= MAX_APP:
        pairs.append(f"app={app}")
    return f"\x1b]7501;{':'.join(pairs)}\x1b\\".encode()


def _parse(body: bytes, now: float) -> StatusRecord:
    """Return the record that a report describes; raise ValueError if it is invalid."""
    pairs: dict[bytes, bytes] = {}
    for pair in body.split(b":"):
        key, equals, value = pair.partition(b"=")
        if equals and _KEY.fullmatch(key) and _VALUE.fullmatch(value):
            pairs[key] = value
    state = pairs.get(b"state", b"").decode()
    if state not in STATES:
        raise ValueError("no state")
    kind = pairs.get(b"kind", b"").decode()
    return StatusRecord(
        id=_id(pairs[b"id"]) if b"id" in pairs else "",
        state=state,
        kind=kind if state == "blocked" and kind in KINDS else "",
        progress=_progress(pairs.get(b"progress", b"")),
        app=_app(pairs.get(b"app", b"")),
        title=_text(pairs.get(b"title", b""), MAX_TITLE),
        msg=_text(pairs.get(b"msg", b""), MAX_MSG),
        time=now,
    )


def _id(value: bytes) -> str:
    """Return the id; raise ValueError if it is invalid: it must not replace the root record."""
    segments = value.split(b"/")
    if len(value) > MAX_ID or len(segments) > MAX_LEVELS or not all(segments):
        raise ValueError("no id")
    return value.decode()


def _progress(value: bytes) -> int | None:
    if not value.isdigit():
        return None
    if len(value) > 3 or int(value) > 100:
        raise ValueError("more than 100 per cent")
    return int(value)


def _app(value: bytes) -> str:
    if len(value) > MAX_APP:
        raise ValueError("too long a name")
    return value.decode() if _APP.fullmatch(value) else ""


def _text(value: bytes, most: int) -> str:
    data = binascii.a2b_base64(value, strict_mode=True)  # binascii.Error is a ValueError
    if len(data) > most:
        raise ValueError("too long a text")
    text = data.decode()  # so is UnicodeDecodeError
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ValueError("a control character")
    return text
