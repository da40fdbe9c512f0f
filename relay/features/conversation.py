"""Tracks the agent's conversation by the id that the agent uses to resume it.

    HookReported ───────────────────┐
    the record that relay has named ┼→ Conversation ─→ CurrentConversation?, `relay ps`, `relay explain`
    the command that resumes one ───┘

An agent may start another one of its kind in the same folder, such as `claude -p` in its shell, whose hooks
may report here as well.  Those hooks are deeper in the process tree than the agent's own, and an id from a
deeper hook never counts.  Nothing depends on which file is the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relay.agents import kinds
from relay.agents.conversation import Conversation, is_id, resumable
from relay.agents.events import ConversationChanged, CurrentConversation, HookReported, RecordLost, TextRead
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.named_transcripts import Named
from relay.agents.profile import Profile
from relay.agents.resume import named_in
from relay.control.lineage import Lineage, ancestors
from relay.dataclass import asdict, dataclass, replace
from relay.eventbus import EventBus, answers, handles
from relay.lifecycle import Describe, SessionBegan
from relay.storage.journal import Journal
from relay.storage.progress import Progress

_NOTE = "conversation"

_BEGINS = frozenset({NativeName.SESSION_START, NativeName.PROMPT_SUBMIT})
"""Events that begin a conversation; late events of an earlier conversation are not among them."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """A hook's place in the agent's process tree.

    root:     the top of the tree: the wrapped process, or one that the shim has adopted.
    distance: the number of processes from the hook up to the root.
    """

    root: int
    distance: int

    def is_near(self, own: _Origin) -> bool:
        """Return True if the hook is no deeper in the tree than the agent's `own` hooks."""
        return self.root == own.root and self.distance <= own.distance


class ConversationTracker:
    """Follows the conversation of one agent, and continues with what an earlier session knew.

    command:   the command that started the agent; it may name a conversation.
    directory: the working directory in which the agent was started.
    lineage:   identifies the agent's processes.
    record:    the record that the agent writes in this run, if relay has named it.
    """

    def __init__(
        self,
        bus: EventBus,
        journal: Journal,
        profile: Profile,
        command: Sequence[str],
        directory: Path,
        lineage: Lineage,
        progress: Progress,
        record: Named | None,
    ) -> None:
        self._bus = bus
        self._journal = journal
        self._profile = profile
        self._command = command
        self._directory = directory
        self._lineage = lineage
        self._progress = progress
        self._record = record if record is not None and is_id(record.session) else None
        self._current: Conversation | None = None
        self._origin: _Origin | None = None  # of the agent's own hooks

    @handles(SessionBegan)
    def begin(self, _: SessionBegan) -> None:
        """Continue with what an earlier session knew, or else with what the command says."""
        noted = next((note for note in reversed(self._progress.notes) if note["note"] == _NOTE), None)
        if noted is not None:
            self._current = Conversation.from_json(noted["conversation"] or {})
            self._origin = _Origin(**noted["origin"]) if noted["origin"] else None
            self._record = self._record if self._current is not None else None
        elif self._record is None and (id := named_in(self._profile, self._command)):
            self._change(self._named(id))

    @handles(HookReported)
    def reported(self, reported: HookReported) -> None:
        """Take the conversation from an event of the agent itself, not of a subagent."""
        event, current = reported.event, self._current
        if event.name not in _BEGINS or event.agent_id or not is_id(event.session_id):
            return
        origin, found = self._origin_of(reported.pid), self._named(event.session_id, _path(event))
        is_near = origin is not None and (self._origin is None or origin.is_near(self._origin))
        if current is not None and current.id == found.id:
            found = replace(found, path=found.path or current.path)
        elif self._origin is not None and not is_near:
            return  # another agent's
        nearest = origin if is_near else self._origin
        if (found, nearest) != (current, self._origin):
            self._origin = nearest
            self._change(found)

    @handles(TextRead)
    def read(self, _: TextRead) -> None:
        self._look()

    @handles(RecordLost)
    def lost(self, event: RecordLost) -> None:
        """Forget a conversation known by its record: the agent may have started another one."""
        if self._record is not None and event.resumes is None:
            self._record = None
            self._change(None)

    @answers(CurrentConversation)
    async def current(self, _: CurrentConversation, __: object) -> Conversation | None:
        self._look()
        return self._current

    @answers(Describe)
    async def describe(self, question: Describe, _: object) -> dict[str, Any]:
        self._look()
        facts = {"session_id": None if self._current is None else self._current.id}
        return facts if question.brief else {**facts, "conversation": self._description()}

    def _description(self) -> str:
        """Describe the conversation for the user; return "" for a program that has none."""
        native = self._profile.native
        if not self._profile.resume.words:
            has_one = native.hooks or native.transcript
            return "cannot be resumed (its profile has no [resume] table)" if has_one else ""
        if self._current is None:
            return "not known, so it cannot be resumed"
        known = "can be resumed" if resumable(self._current) else "nothing to resume yet"
        return f"{self._current.id} ({known})"

    def _look(self) -> None:
        """Take the conversation from the record that relay has named, once the agent writes it."""
        if self._current is None and self._record is not None and (found := self._record.find()):
            self._change(self._named(self._record.session, Path(found[0])))

    def _change(self, conversation: Conversation | None) -> None:
        if conversation != self._current:
            self._current = conversation
            self._journal.write("conversation", conversation=conversation.id if conversation else None)
            self._bus.publish(ConversationChanged(conversation))
        self._progress.note(
            _NOTE,
            conversation=conversation.to_json() if conversation else None,
            origin=asdict(self._origin) if self._origin else None,
        )

    def _named(self, id: str, path: Path | None = None) -> Conversation:
        return Conversation(self._profile.name, id, self._directory, path)

    def _origin_of(self, pid: int) -> _Origin | None:
        pids = ancestors(pid)
        root = self._lineage.through(pids)
        return _Origin(root, pids.index(root)) if root else None


def _path(event: NativeEvent) -> Path | None:
    """Return the file of the event's conversation; a transcript that relay has written does not count."""
    ours = kinds.find(event.agent).transcript_is_ours
    written = event.raw.get("session_file") if ours else event.transcript_path
    return Path(written) if isinstance(written, str) and written.startswith("/") else None
