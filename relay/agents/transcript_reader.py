"""What an agent with a transcript said: every text, word for word, each once, in its order.

    hook event ──┐ opens the transcripts; a stop promises the last text
                 ▼
    transcripts ──poll──→ lines ──→ Said, Said, ...          (and a promised text that no transcript brought)

The transcript is the source: it alone has the texts before tool calls. But it lags behind the hooks, or is
not there at all, so the last text that a stop event carries is *promised*: if the transcript has not brought
it within GRACE, it is said from the event, and what the transcript brings later is recognised and dropped.

What was said before this run, or before `/clear`, is never said: a transcript that exists when a session
begins is read from its end, and a copy of old lines in a new file (a forked session) is known by their ids
and times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.tail import Tail
from relay.agents.transcript_formats import reader, subagent_path

GRACE = 0.7
"""Seconds that a transcript may lag behind a stop event (claude 2.1.197: about 0.1)."""

LATEST = 60.0
"""Seconds after which a transcript is no longer expected to bring a text that was said from a stop event."""

SILENT = "it brings nothing of what the agent says; only the last text of each turn is heard"
"""The problem of a transcript that is absent, or that a new version of the agent writes in another way."""

BUDGET = 1 << 20
"""Bytes read at most in one look at the transcripts, all together."""

_FOLLOWED = 32  # transcripts at once; the one that was longest without an event goes first
_SPEAKERS = 64
_SILENT = 2  # texts; one may come late on a busy machine
_SEEN = 20_000  # ids
_UNCLAIMED = 64  # texts of one speaker

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})
_STOPS = frozenset({NativeName.STOP, NativeName.SUBAGENT_STOP})
_FRESH = frozenset({"startup", "clear"})


@dataclass(frozen=True, slots=True)
class Said:
    """One text of an agent, as the model wrote it (Markdown).

    id:         unique in the session; the same text said twice has two.
    subagent:   which subagent said it; "" for the agent itself.
    agent_type: what kind of subagent that is, as the agent calls it.
    """

    text: str
    id: str
    subagent: str = ""
    agent_type: str = ""


class Words:
    """The texts of one agent. Nothing is raised; `problem` says what is wrong with its transcripts.

    Call `event` for each hook event, before the hook is answered (the agent then waits, so that nothing new
    is in the transcript when a session begins); `poll` about every 0.1 s while the agent works, for a second
    after, and until `settled`, which costs a stat(2) for each transcript when nothing changed; `close` when
    the agent has ended. Each gives what was said since the last call and blocks on nothing but the disk;
    `event` and `poll` read at most BUDGET bytes once or twice.

    kind:  "claude", "codex" or "qwen".
    clock: seconds since the epoch, as the agent's own clock tells them.
    """

    def __init__(self, kind: str, *, clock: Callable[[], float] = time.time) -> None:
        self._kind = kind
        self._read = reader(kind)
        self._clock = clock
        self._transcripts: dict[str, _Transcript] = {}  # by path, the least recently used first
        self._began = _iso(clock())  # when this run, or the session that it went over to, began
        self._speakers: dict[str, _Speaker] = {}
        self._seen: dict[str, None] = {}  # ids of what was said, oldest first
        self._promises = 0
        self._silent = 0  # texts said from stop events since a transcript last brought one

    @property
    def problem(self) -> str | None:
        """Why texts may be missing or come late; None when all is well."""
        told = next((each.tail.problem for each in self._transcripts.values() if each.tail.problem), None)
        return told or (SILENT if self._silent >= _SILENT else None)

    @property
    def settled(self) -> bool:
        """Whether nothing is known to be missing: no promised text, no rest of a transcript."""
        return not self._behind() and not any(speaker.promised for speaker in self._speakers.values())

    def event(self, event: NativeEvent) -> list[Said]:
        """What was said up to this event, as far as it is written down."""
        said = self.poll()  # what an old transcript still holds was said before the event
        if self._kind == "claude" and event.agent_id and not event.agent_type:
            return said  # claude runs itself so for its own ends, as for the summary of a compaction
        if self._open(event):
            said += self.poll()
        # The last message of a failed turn (stop_failure) is the agent's own text about the error.
        if event.name in _STOPS and event.last_assistant_message.strip():
            self._promises += 1
            promise = Said(
                event.last_assistant_message, f"stop/{self._promises}", event.agent_id, event.agent_type
            )
            self._speaker(promise).promise(promise, self._clock())
        return said

    def poll(self) -> list[Said]:
        """What was written since the last call, and what was promised and did not come in time."""
        said = self._written()
        if not self._behind():
            said += self._overdue(self._clock())
        return said

    def close(self) -> list[Said]:
        """The rest, when the agent has ended: all that is written, and every promise without waiting."""
        said = self._written()
        while self._behind():
            said += self._written()
        self._transcripts.clear()
        return said + self._overdue(float("inf"))

    def _overdue(self, now: float) -> list[Said]:
        late = [said for speaker in self._speakers.values() for said in speaker.overdue(now)]
        self._silent += len(late)
        return late

    def _behind(self) -> bool:
        return any(each.tail.behind() for each in self._transcripts.values())

    def _written(self) -> list[Said]:
        said: list[Said] = []
        budget = BUDGET
        for each in self._transcripts.values():
            lines, used = each.tail.read(budget)
            budget -= used
            for line in lines:
                said += self._line(line, each)
            if budget <= 0:
                break
        return said

    def _line(self, line: bytes, source: _Transcript) -> list[Said]:
        said: list[Said] = []
        for spoken in self._read(line):
            if (spoken.time and spoken.time < source.since) or spoken.id in self._seen:
                continue  # said before: an old line that was copied here, or a file that was written anew
            self._silent = 0
            self._remember(spoken.id)
            text = Said(
                spoken.text,
                spoken.id,
                spoken.subagent or source.subagent,
                spoken.agent_type or source.agent_type,
            )
            if self._speaker(text).brought(text, self._clock()):
                said.append(text)
        return said

    def _open(self, event: NativeEvent) -> bool:
        """Follow the transcripts that the event names; whether one is new."""
        main, own = event.transcript_path, ""
        if event.agent_id:
            told = event.raw.get("agent_transcript_path")
            if not isinstance(told, str) or told == main:
                told = subagent_path(self._kind, main, event.agent_id)
            own = told
        new = own != main and self._follow(main, event)
        return self._follow(own, event, event.agent_id, event.agent_type) or new

    def _follow(self, path: str, event: NativeEvent, subagent: str = "", agent_type: str = "") -> bool:
        if not path.startswith(os.sep) or "\0" in path:
            return False
        known = self._transcripts.pop(path, None)
        if known is not None:
            self._transcripts[path] = known  # now the most recently used
            return False
        since = self._began
        at_end = False
        if event.name in _BEGINS or (subagent and event.name is NativeName.SUBAGENT_START):
            # The agent waits for this event to be answered: what is there now was said before it.
            at_end = os.access(path, os.F_OK)  # Path.exists raises for a name that is too long
            if event.name is NativeName.SESSION_START:
                since = self._began = _iso(self._clock())
                if not at_end and event.source in _FRESH:
                    since = ""  # nothing old is ever copied there: a clock that is set back does no harm
        self._transcripts[path] = _Transcript(Tail(Path(path), at_end), since, subagent, agent_type)
        while len(self._transcripts) > _FOLLOWED:
            del self._transcripts[next(iter(self._transcripts))]
        return True

    def _speaker(self, said: Said) -> _Speaker:
        # Qwen's transcript names a subagent in another way than its hooks; what kind it is, both say.
        key = said.agent_type if self._kind == "qwen" else said.subagent
        while len(self._speakers) >= _SPEAKERS and key not in self._speakers:
            del self._speakers[next(iter(self._speakers))]
        return self._speakers.setdefault(key, _Speaker())

    def _remember(self, id: str) -> None:
        self._seen[id] = None
        while len(self._seen) > _SEEN:
            del self._seen[next(iter(self._seen))]


@dataclass(frozen=True, slots=True)
class _Transcript:
    """A file that is followed. since: what has an older time there is not said ("" for no limit)."""

    tail: Tail
    since: str
    subagent: str
    agent_type: str


class _Speaker:
    """Brings together what transcript and stop events tell of one speaker, so that each text counts once."""

    __slots__ = ("_owed", "_unclaimed", "promised")

    def __init__(self) -> None:
        self.promised: list[
            tuple[Said, float]
        ] = []  # from stop events, and until when the transcript may bring it
        self._unclaimed: list[str] = []  # brought by the transcript; no stop event told of it so far
        self._owed: list[
            tuple[str, float]
        ] = []  # said from a stop event; the transcript may bring it until then

    def promise(self, said: Said, now: float) -> None:
        """A stop event tells the last text."""
        if not _take(self._unclaimed, _bare(said.text)):
            self.promised.append((said, now + GRACE))

    def brought(self, said: Said, now: float) -> bool:
        """The transcript brings a text: whether it is news."""
        bare = _bare(said.text)
        for number, (owed, until) in enumerate(self._owed):
            if owed == bare and now < until:
                del self._owed[number]
                return False
        for number, (promised, _) in enumerate(self.promised):
            if _bare(promised.text) == bare:
                del self.promised[number]
                return True
        self._unclaimed = [*self._unclaimed[-_UNCLAIMED:], bare]
        return True

    def overdue(self, now: float) -> list[Said]:
        """The promised texts that the transcript has not brought by now."""
        late = [said for said, until in self.promised if until <= now]
        self.promised = [(said, until) for said, until in self.promised if until > now]
        self._owed = [(bare, until) for bare, until in self._owed if until > now]
        self._owed += [(_bare(said.text), now + LATEST) for said in late]
        return late


def _bare(text: str) -> str:
    """A text without its white space, which a stop event trims."""
    return "".join(text.split())


def _take(texts: list[str], text: str) -> bool:
    if text not in texts:
        return False
    texts.remove(text)
    return True


def _iso(seconds: float) -> str:
    """As the agents write times, so that texts compare as times do: 2026-11-22T06:12:53.205Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
