"""A session identifies its agent's conversation by the agent's own id, and no other agent's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agents.hooked import Claude
from relay.agents.conversation import Conversation
from relay.agents.events import ConversationChanged, CurrentConversation, RecordLost, TextRead
from relay.agents.named_transcripts import Named
from relay.agents.profile import Profile
from relay.control.lineage import Lineage
from relay.eventbus import EventBus, handles
from relay.features.conversation import ConversationTracker
from relay.lifecycle import SessionBegan
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from session.fake_agent import FakeAgent, ps
from support import Relay, session_patch, wait_until

FIRST, SECOND, OTHER = "11111111-aaaa", "22222222-bbbb", "33333333-cccc"

PROMPT = '{"type":"user","message":{"role":"user","content":"do it"}}\n'


@pytest.fixture
def claude(relay: Relay) -> Claude:
    return Claude(relay).wrap()


def conversation(claude: Claude) -> str | None:
    """Return its id in `relay ps`."""
    (row,) = ps(claude.relay)
    return row["session_id"] and str(row["session_id"])


def explained(relay: Relay, name: str) -> list[str]:
    return [
        line for line in relay("explain", name).stdout.splitlines() if line.startswith("Its conversation")
    ]


def begin(claude: Claude, id: str, source: str = "startup", *, below: bool = False, path: str = "") -> None:
    claude.fire("SessionStart", source=source, session_id=id, transcript_path=path, below=below)


def test_the_id_is_that_of_its_own_hooks(claude: Claude) -> None:
    assert conversation(claude) is None
    assert explained(claude.relay, "Ann") == ["Its conversation: not known, so it cannot be resumed."]
    begin(claude, FIRST)
    assert conversation(claude) == FIRST
    (entry,) = claude.events("conversation")
    assert entry["conversation"] == FIRST


def test_it_changes_with_a_new_conversation(claude: Claude) -> None:
    begin(claude, FIRST)
    begin(claude, SECOND, "clear")
    assert conversation(claude) == SECOND
    claude.fire("UserPromptSubmit", prompt="x", session_id=OTHER)
    assert conversation(claude) == OTHER, "though its start was not heard"


def test_late_events_of_the_one_before_do_not_bring_it_back(claude: Claude) -> None:
    begin(claude, FIRST)
    begin(claude, SECOND, "clear")
    claude.fire("SessionEnd", session_id=FIRST, reason="clear")
    claude.fire("Stop", session_id=FIRST, last_assistant_message="done")
    assert conversation(claude) == SECOND


@pytest.mark.parametrize("source", ["startup", "clear", "resume"])
def test_an_agent_that_it_starts_does_not_take_its_place(claude: Claude, source: str) -> None:
    """For example `claude -p` in its shell, in the same folder, during a turn or between two."""
    begin(claude, FIRST)
    begin(claude, OTHER, source, below=True)
    claude.fire("UserPromptSubmit", prompt="x", session_id=FIRST)
    begin(claude, OTHER, source, below=True)
    claude.fire("UserPromptSubmit", prompt="x", session_id=OTHER, below=True)
    assert conversation(claude) == FIRST
    begin(claude, SECOND, "clear")
    assert conversation(claude) == SECOND, "and its own are heard as before"


def test_a_subagent_does_not(claude: Claude) -> None:
    begin(claude, FIRST)
    claude.fire("SessionStart", source="startup", session_id=OTHER, agent_id="a1", agent_type="Explore")
    assert conversation(claude) == FIRST


@pytest.mark.parametrize("id", ["--dangerously-skip-permissions", "a b", "../x", ""])
def test_what_is_no_id_is_none(claude: Claude, id: str) -> None:
    begin(claude, id)
    assert conversation(claude) is None


def test_it_tells_whether_there_is_something_to_resume(claude: Claude) -> None:
    path = claude.folder / "transcript.jsonl"
    begin(claude, FIRST, path=str(path))
    assert explained(claude.relay, "Ann") == [f"Its conversation: {FIRST} (nothing to resume yet)."]
    path.write_text(PROMPT)
    assert explained(claude.relay, "Ann") == [f"Its conversation: {FIRST} (can be resumed)."]


def test_the_next_session_knows_it_too(claude: Claude) -> None:
    """The next session also knows by which process to recognise the agent's own hooks."""
    begin(claude, FIRST, path=str(claude.folder / "transcript.jsonl"))
    (before,) = ps(claude.relay)
    claude.relay("reload", "Ann")
    wait_until(lambda: ps(claude.relay)[0]["pid"] not in {None, before["pid"]})
    assert conversation(claude) == FIRST
    assert "nothing to resume" in explained(claude.relay, "Ann")[0], "its file is known, too"
    begin(claude, OTHER, "clear", below=True)
    assert conversation(claude) == FIRST
    begin(claude, SECOND, "clear")
    assert conversation(claude) == SECOND
    assert [each["conversation"] for each in claude.events("conversation")] == [FIRST, SECOND]


def test_a_command_that_resumes_one_names_it(relay: Relay) -> None:
    """The command counts until the hooks report, which for some agents is at the first prompt."""
    claude = Claude(relay).wrap("--resume", FIRST)
    assert conversation(claude) == FIRST
    begin(claude, SECOND, "resume")
    assert conversation(claude) == SECOND, "older versions go on under another id"


def test_an_agent_that_resumes_after_a_crash_has_its_conversation_from_the_start(relay: Relay) -> None:
    """The first command may name another; a second crash before any hook loses nothing."""
    policy = json.dumps({"restart": "always", "backoff": 0.05})
    claude = Claude(relay).wrap("--resume", FIRST, options=("--supervision", policy))
    begin(claude, FIRST, "resume")
    begin(claude, SECOND, "clear")
    claude.exit()
    wait_until(
        lambda: [row["restarts"] for row in ps(relay)] == [1], message=lambda: str(claude.events("phase"))
    )
    assert conversation(claude) == SECOND


def test_whoever_asks_on_the_bus_is_told(relay: Relay) -> None:
    """The answer is the same at the agent's end, and there is an event when it changes."""
    code = """
from relay.agents.events import ConversationChanged, CurrentConversation
from relay.eventbus import answers, handles
from relay.lifecycle import LastWords
from relay.session.features import FEATURES
from relay.terminal.events import Notify

class Asks:
    def __init__(self, bus):
        self.bus = bus
    @handles(ConversationChanged)
    def changed(self, event):
        self.bus.publish(Notify(f"CHANGED {event.conversation.id}"))
    @answers(LastWords)
    async def last(self, _, __):
        (found,) = await self.bus.ask(CurrentConversation())
        self.bus.publish(Notify(f"LAST {found.agent} {found.id} {found.directory} {found.path}"))

FEATURES["asks"] = lambda core: Asks(core.bus)
"""
    folder = relay.home / "project"
    folder.mkdir()
    claude = Claude(relay).wrap(cwd=folder, env=session_patch(code))
    begin(claude, FIRST, path="/folder/transcript.jsonl")
    claude.exit()
    ended = wait_until(lambda: [e["text"] for e in claude.events("notice") if "LAST" in e["text"]])
    assert ended == [f"LAST claude {FIRST} {folder} /folder/transcript.jsonl"]
    assert [e["text"] for e in claude.events("notice") if "CHANGED" in e["text"]] == [f"CHANGED {FIRST}"]


def test_a_program_without_conversations_has_none_and_nothing_is_said(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap()
    assert [row["session_id"] for row in ps(relay)] == [None]
    assert explained(relay, "Alice") == []


def test_of_an_agent_that_cannot_resume_that_is_said(relay: Relay) -> None:
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "mine.toml").write_text('name = "mine"\n[native]\nhooks = "relay"\n')
    FakeAgent(relay, "Alice").wrap(options=("--agent", "mine"))
    assert explained(relay, "Alice") == [
        "Its conversation: cannot be resumed (its profile has no [resume] table)."
    ]


class Heard:
    """What the tracker has published, for an agent whose record relay has named."""

    def __init__(self, folder: Path, *, resumed: bool = False) -> None:
        self.found: list[Conversation | None] = []
        self.bus = EventBus()
        record = Named("gemini", f"{folder}/session-*.jsonl", "", f'"{FIRST}"', session=FIRST)
        self.bus.add(self)
        self.bus.add(
            ConversationTracker(
                self.bus,
                Journal(folder / "journal", "s", "Ann"),
                Profile("gemini", folder / "gemini.toml"),
                ["gemini", "--session-id", FIRST],
                folder,
                Lineage(0, 0, 0),
                Progress(folder / "progress.jsonl", resumed=resumed),
                record,
            )
        )
        self.bus.publish(SessionBegan(resumed))

    @handles(ConversationChanged)
    def changed(self, event: ConversationChanged) -> None:
        self.found.append(event.conversation)

    async def asked(self) -> list[Conversation]:
        return await self.bus.ask(CurrentConversation())


def test_a_record_that_relay_has_named_tells_it_until_it_is_lost(tmp_path: Path) -> None:
    """Gemini without hooks: nothing is saved before the first prompt, and nothing reports a /clear."""
    path = tmp_path / "session-1.jsonl"
    known = Conversation("gemini", FIRST, tmp_path, path)

    async def scene() -> None:
        heard = Heard(tmp_path)
        assert await heard.asked() == []
        (tmp_path / "session-0.jsonl").write_text('{"sessionId": "another"}\n')
        assert await heard.asked() == [], "another agent's is newer"
        path.write_text(f'{{"sessionId": "{FIRST}"}}\n')
        heard.bus.publish(TextRead(()))
        assert heard.found == [known] == await heard.asked()
        later = Heard(tmp_path, resumed=True)
        assert await later.asked() == [known]
        later.bus.publish(RecordLost("it contains nothing of what the agent does"))
        assert later.found == [None] and await later.asked() == []
        assert await Heard(tmp_path, resumed=True).asked() == []

    asyncio.run(scene())
