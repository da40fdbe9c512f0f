"""The reader of an agent's transcripts: every text it said, word for word, once and in order.

    hook event ──┐ opens the transcripts; a stop event carries the last text
                 ▼
    transcripts ──poll──→ lines ──→ Said, Said, ...          (and the text of a stop that no transcript has)

The transcript is the source: only it has the texts before tool calls. But it lags behind the hooks, or is
missing, so the last text that a stop event carries is *expected*: if the transcript does not have it in
time, it is taken from the event, and a later line of the transcript with the same text is dropped.

Without hooks to open the transcripts, `follow` names them: what one run of an agent writes (`Named`).

Texts from before this run, or before `/clear`, are never emitted: a transcript that exists when a session
begins is read from its end, and copies of old lines in a new file (a forked session) are recognised by their
ids and times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from relay.agents import kinds
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.named_transcripts import Named, iso
from relay.agents.tail import Tail
from relay.agents.transcript_lines import BEFORE, Ambiguous, Failed, Said
from relay.dataclass import dataclass, replace

GRACE = 5.0
"""Seconds that a transcript may lag behind a stop event: claude 2.1.197 about 0.1, qwen 0.24.4 two on a busy
machine. Its texts of the turn come before the text of the event."""

SHORT = 0.7
"""The same once a transcript has lacked a text."""

LATEST = 60.0
"""Seconds after which a transcript no longer gets a text that was taken from a stop event."""

SILENT = "it contains none of the agent's output; relay reads only the last text of each turn"
"""The problem of a transcript that is missing, or that a new version of the agent writes differently."""

BUDGET = 1 << 20
"""Maximum bytes read in one poll, of all transcripts together."""

_FOLLOWED = 32  # transcripts at once; the one without an event for the longest time is dropped first
_SPEAKERS = 64
_SILENT = 2  # texts; one may come late on a busy machine
_SEEN = 20_000  # ids
_UNCLAIMED = 64  # texts of one speaker

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})
_STOPS = frozenset({NativeName.STOP, NativeName.SUBAGENT_STOP})
_FRESH = frozenset({"startup", "clear"})


class TranscriptReader:
    """The texts of one agent. It raises nothing; `problem` says what is wrong with the transcripts.

    Call `event` for each hook event, before the hook is answered; `poll` about every 0.1 s while the agent
    works, for a second afterwards, and until `settled`; `close` when the agent has ended.  Each returns the
    texts since the last call, and blocks on nothing but the disk; `event` and `poll` read at most BUDGET
    bytes once or twice.

    kind:     the kind of agent that writes such transcripts (relay.agents.kinds).
    clock:    seconds since the epoch, by the agent's own clock.
    followed: called with what `resume` needs, whenever another transcript is followed.

    broken: why nothing more can be read; None if it can.
    """

    def __init__(
        self,
        kind: str,
        *,
        clock: Callable[[], float] = time.time,
        followed: Callable[[dict[str, Any]], None] = lambda fields: None,
    ) -> None:
        self._kind = kinds.find(kind)
        self._followed = followed
        self._read = self._kind.reader() or (lambda line: [])
        self._clock = clock
        self._transcripts: dict[str, _Transcript] = {}  # by path, the least recently used first
        self._began = iso(clock())  # the beginning of this run, or of its latest session
        self._speakers: dict[str, _Speaker] = {}
        self._emitted = _Emitted()
        self._expected = 0
        self._silent = 0  # texts from stop events since a transcript last had one
        self._named: Named | None = None
        self.broken: str | None = None

    @property
    def problem(self) -> str | None:
        """The reason why texts may be missing or late; None if there is none."""
        found = next((each.tail.problem for each in self._transcripts.values() if each.tail.problem), None)
        return self.broken or found or (SILENT if self._silent >= _SILENT else None)

    @property
    def size(self) -> int:
        """The bytes read of the transcripts: more than before if they have grown."""
        return sum(each.tail.offset for each in self._transcripts.values())

    @property
    def cut_off(self) -> bool:
        """True if a transcript ends in mid-line: the rest is being written, or could not be."""
        return any(each.tail.cut_off for each in self._transcripts.values())

    @property
    def settled(self) -> bool:
        """True if nothing is known to be missing: no expected text, no rest of a transcript."""
        return not self._behind() and not any(speaker.expected for speaker in self._speakers.values())

    def take_failures(self) -> list[Failed]:
        """Return the failed turns of the agent itself that were read since the last call."""
        failures, self._emitted.failures = self._emitted.failures, []
        return failures

    def event(self, event: NativeEvent) -> list[Said]:
        """Return the texts up to this event that are already written."""
        said = self.poll()  # the rest of an old transcript was said before the event
        if self._kind.runs_itself(event):
            return said
        if self._open(event):
            said += self.poll()
        # The last message of a failed turn (stop_failure) is the agent's own text about the error.
        if event.name in _STOPS and event.last_assistant_message.strip():
            self._expected += 1
            id = f"stop/{self._expected}"
            last = Said(event.last_assistant_message, id, "", event.agent_id, event.agent_type)
            self._speaker(last).expect(last, self._clock() + (SHORT if self._silent else GRACE))
        return said

    def follow(self, named: Named) -> None:
        """Follow the transcripts that `named` finds, as soon as it finds any."""
        self._named = named

    def resume(self, followed: Sequence[Mapping[str, Any]]) -> list[Said]:
        """Follow the transcripts of an earlier reader; return their texts, which it may have returned."""
        for each in followed:
            tail = Tail(Path(each["path"]), offset=int(each["offset"]))
            transcript = _Transcript(tail, each["since"], each["subagent"], each["agent_type"])
            self._transcripts[each["path"]] = transcript
            self._began = each["began"]
        return self._rest()

    def poll(self) -> list[Said]:
        """Return the texts written since the last call, and the expected ones that are overdue."""
        said = self._written()
        if not self._behind():
            said += self._overdue(self._clock())
        return said

    def close(self) -> list[Said]:
        """Return the rest once the agent has ended: all that is written, and every expected text."""
        said = self._rest()
        self._transcripts.clear()
        self._named = None
        return said + self._overdue(float("inf"))

    def _rest(self) -> list[Said]:
        said = self._written()
        while self._behind():
            said += self._written()
        return said + self._written()  # of a text whose end is known only once nothing follows

    def _overdue(self, now: float) -> list[Said]:
        late = [said for speaker in self._speakers.values() for said in speaker.overdue(now)]
        self._silent += len(late)
        return late

    def _behind(self) -> bool:
        return any(each.tail.behind for each in self._transcripts.values())

    def _written(self) -> list[Said]:
        said: list[Said] = []
        budget = BUDGET
        self._find()
        for each in self._transcripts.values():
            lines, used = each.tail.read(budget)
            budget -= used
            if not (used or each.tail.behind or each.tail.cut_off):
                lines = [(b"", each.tail.offset + 1)]
            try:
                for line, end in lines:
                    said += self._line(line, end, each)
            except Ambiguous as error:
                self.broken = str(error)
            if budget <= 0 or self.broken:
                break
        return said

    def _find(self) -> None:
        if self.broken:
            self._transcripts.clear()
        elif self._named is not None and not self._transcripts:
            for path in self._named.find():
                self._add(path, Tail(Path(path)), self._named.since)

    def _line(self, line: bytes, end: int, source: _Transcript) -> list[Said]:
        new: list[Said] = []
        failed = None if source.subagent else self._kind.failure(line)
        if failed is not None and self._emitted.add(failed, source):
            self._emitted.failures.append(failed)
        for said in self._read(line):
            if not self._emitted.add(said, source):
                continue
            self._silent = 0
            subagent, kind = said.subagent or source.subagent, said.agent_type or source.agent_type
            place = end - len(line) - 1 if said.place == BEFORE else end
            text = replace(said, subagent=subagent, agent_type=kind, place=place)
            if self._speaker(text).written(text, self._clock()):
                new.append(text)
        return new

    def _open(self, event: NativeEvent) -> bool:
        """Follow the transcripts that the event names. Return True if one is new."""
        main, own = event.transcript_path, ""
        if event.agent_id:
            named = event.raw.get("agent_transcript_path")
            if not isinstance(named, str) or named == main:
                named = self._kind.subagent_transcript(main, event.agent_id)
            own = named
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
            # The agent waits for the answer to this event: the current contents were said before it.
            at_end = os.access(path, os.F_OK)  # Path.exists raises for a name that is too long
            if event.name is NativeName.SESSION_START:
                since = self._began = iso(self._clock())
                if not at_end and event.source in _FRESH:
                    since = ""  # no old line is ever copied there: a clock that is set back does no harm
        self._add(path, Tail(Path(path), at_end), since, subagent, agent_type)
        return True

    def _add(self, path: str, tail: Tail, since: str, subagent: str = "", agent_type: str = "") -> None:
        self._transcripts[path] = _Transcript(tail, since, subagent, agent_type)
        place = {"path": path, "offset": tail.offset, "since": since, "began": self._began}
        self._followed({**place, "subagent": subagent, "agent_type": agent_type})
        while len(self._transcripts) > _FOLLOWED:
            del self._transcripts[next(iter(self._transcripts))]

    def _speaker(self, said: Said) -> _Speaker:
        key = self._kind.speaker(said)
        while len(self._speakers) >= _SPEAKERS and key not in self._speakers:
            del self._speakers[next(iter(self._speakers))]
        return self._speakers.setdefault(key, _Speaker())


@dataclass(frozen=True, slots=True)
class _Transcript:
    """A followed file. since: its texts with an older time are not emitted ("" for no limit)."""

    tail: Tail
    since: str
    subagent: str
    agent_type: str


class _Emitted:
    """The texts and failures that were emitted, by id. failures: those not taken yet."""

    def __init__(self) -> None:
        self.failures: list[Failed] = []
        self._ids: dict[str, None] = {}  # oldest first

    def add(self, found: Said | Failed, source: _Transcript) -> bool:
        """Return False if it was emitted before: an old line that was copied, or a rewritten file."""
        if (found.time and found.time < source.since) or found.id in self._ids:
            return False
        self._ids[found.id] = None
        while len(self._ids) > _SEEN:
            del self._ids[next(iter(self._ids))]
        return True


class _Speaker:
    """Matches the texts of one speaker from transcript and stop events, so that each is emitted once."""

    def __init__(self) -> None:
        # Texts of stop events, and the time by which the transcript should have them.
        self.expected: list[tuple[Said, float]] = []
        self._unclaimed: list[str] = []  # from the transcript, and in no stop event so far
        # Emitted from a stop event, and the time until which the transcript may still get them.
        self._late: list[tuple[str, float]] = []

    def expect(self, said: Said, until: float) -> None:
        """Take the last text from a stop event; the transcript should have it by `until`."""
        bare = _bare(said.text)
        if bare in self._unclaimed:
            self._unclaimed.remove(bare)
        else:
            self.expected.append((said, until))

    def written(self, said: Said, now: float) -> bool:
        """Take a text from the transcript. Return True if it is new."""
        bare = _bare(said.text)
        for number, (late, until) in enumerate(self._late):
            if late == bare and now < until:
                del self._late[number]
                return False
        for number, (expected, _) in enumerate(self.expected):
            if _bare(expected.text) == bare:
                del self.expected[number]
                return True
        self._unclaimed = [*self._unclaimed[-_UNCLAIMED:], bare]
        return True

    def overdue(self, now: float) -> list[Said]:
        """Return the expected texts that the transcript should have by now, and stop expecting them."""
        late = [said for said, until in self.expected if until <= now]
        self.expected = [(said, until) for said, until in self.expected if until > now]
        self._late = [(bare, until) for bare, until in self._late if until > now]
        self._late += [(_bare(said.text), now + LATEST) for said in late]
        return late


def _bare(text: str) -> str:
    """Return a text without its white space, which a stop event trims."""
    return "".join(text.split())
