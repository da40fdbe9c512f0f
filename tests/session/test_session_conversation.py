"""A session knows the id of its agent's conversation, and does not confuse it with another agent's."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
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
from session.fake_agent import Entry, FakeAgent, ps
from support import Relay, session_patch, wait_until

FIRST, SECOND, OTHER = "11111111-aaaa", "22222222-bbbb", "33333333-cccc"

PROMPT = '{"type":"user","message":{"role":"user","content":"do it"}}\n'


numbers = itertools.count(1)


@pytest.fixture
def claude(shared: Relay) -> Iterator[Claude]:
    """Yield an agent in a home that it shares with those of other tests."""
    claude = Claude(shared, f"Ann{next(numbers)}").wrap()
    yield claude
    claude.exit()


def row(claude: Claude) -> Entry:
    (found,) = [row for row in ps(claude.relay) if row["name"] == claude.name]
    return found


def conversation(claude: Claude) -> str | None:
    """Return the conversation's id in `relay ps`."""
    id = row(claude)["session_id"]
    return id and str(id)


def explained(relay: Relay, name: str) -> list[str]:
    return [
        line for line in relay("explain", name).stdout.splitlines() if line.startswith("Its conversation")
    ]


def start(claude: Claude, id: str, source: str = "startup", *, below: bool = False, path: str = "") -> None:
    claude.fire("SessionStart", source=source, session_id=id, transcript_path=path, below=below)


def test_the_id_comes_from_the_agents_hooks(claude: Claude) -> None:
    assert conversation(claude) is None
    assert explained(claude.relay, claude.name) == ["Its conversation: not known, so it cannot be resumed."]
    start(claude, FIRST)
    assert conversation(claude) == FIRST
    (entry,) = claude.events("conversation")
    assert entry["conversation"] == FIRST


def test_the_id_changes_with_a_new_conversation(claude: Claude) -> None:
    start(claude, FIRST)
    start(claude, SECOND, "clear")
    assert conversation(claude) == SECOND
    claude.fire("UserPromptSubmit", prompt="x", session_id=OTHER)
    assert conversation(claude) == OTHER, "although its start was not reported"


def test_late_events_do_not_restore_the_previous_conversation(claude: Claude) -> None:
    start(claude, FIRST)
    start(claude, SECOND, "clear")
    claude.fire("SessionEnd", session_id=FIRST, reason="clear")
    claude.fire("Stop", session_id=FIRST, last_assistant_message="done")
    assert conversation(claude) == SECOND


def test_a_nested_agent_does_not_change_the_conversation(claude: Claude, subtests: pytest.Subtests) -> None:
    """For example `claude -p` in its shell, in the same folder, during a turn or between turns."""
    start(claude, FIRST)
    for number, source in enumerate(("startup", "clear", "resume")):
        with subtests.test(source):
            own = conversation(claude)
            start(claude, OTHER, source, below=True)
            claude.fire("UserPromptSubmit", prompt="x", session_id=own)
            start(claude, OTHER, source, below=True)
            claude.fire("UserPromptSubmit", prompt="x", session_id=OTHER, below=True)
            assert conversation(claude) == own
            start(claude, f"{number}-{SECOND}", "clear")
            assert conversation(claude) == f"{number}-{SECOND}", "and the agent's own events still count"


def test_a_subagent_does_not_change_the_conversation(claude: Claude) -> None:
    start(claude, FIRST)
    claude.fire("SessionStart", source="startup", session_id=OTHER, agent_id="a1", agent_type="Explore")
    assert conversation(claude) == FIRST


def test_an_invalid_id_is_ignored(claude: Claude, subtests: pytest.Subtests) -> None:
    for id in ("--dangerously-skip-permissions", "a b", "../x", ""):
        with subtests.test(id):
            start(claude, id)
            assert conversation(claude) is None


def test_explain_says_whether_the_conversation_can_be_resumed(claude: Claude) -> None:
    path = claude.folder / "transcript.jsonl"
    start(claude, FIRST, path=str(path))
    assert explained(claude.relay, claude.name) == [f"Its conversation: {FIRST} (nothing to resume yet)."]
    path.write_text(PROMPT)
    assert explained(claude.relay, claude.name) == [f"Its conversation: {FIRST} (can be resumed)."]


def test_the_next_session_knows_the_conversation(claude: Claude) -> None:
    """It also knows the process of the agent's own hooks."""
    start(claude, FIRST, path=str(claude.folder / "transcript.jsonl"))
    before = row(claude)
    claude.relay("reload", claude.name)
    wait_until(lambda: row(claude)["session_pid"] not in {None, before["session_pid"]})
    assert conversation(claude) == FIRST
    assert "nothing to resume" in explained(claude.relay, claude.name)[0], "its file is known as well"
    start(claude, OTHER, "clear", below=True)
    assert conversation(claude) == FIRST
    start(claude, SECOND, "clear")
    assert conversation(claude) == SECOND
    assert [each["conversation"] for each in claude.events("conversation")] == [FIRST, SECOND]


def test_the_id_comes_from_a_command_that_resumes(shared: Relay) -> None:
    """This holds until a hook reports an id, which for some agents is at the first prompt."""
    claude = Claude(shared, "Resumed").wrap("--resume", FIRST)
    assert conversation(claude) == FIRST
    start(claude, SECOND, "resume")
    assert conversation(claude) == SECOND, "older versions continue with another id"


def test_an_agent_restarted_after_a_crash_knows_its_conversation_at_once(shared: Relay) -> None:
    """The original command may name another one, and no hook has reported yet."""
    policy = json.dumps({"restart": "always", "backoff": 0.05})
    claude = Claude(shared, "Restarted").wrap("--resume", FIRST, options=("--supervision", policy))
    start(claude, FIRST, "resume")
    start(claude, SECOND, "clear")
    claude.exit()
    wait_until(lambda: row(claude)["restarts"] == 1, message=lambda: str(claude.events("phase")))
    assert conversation(claude) == SECOND


def test_up_says_that_a_conversation_is_lost(relay: Relay) -> None:
    """For example, because the agent wrote no transcript."""
    project = relay.home / "project"
    project.mkdir()
    claude = Claude(relay)
    run, env = json.dumps([str(claude.program)]), json.dumps(str(claude.folder))
    fleet = f'[fleet]\nteam = "default"\n[agents.Ann]\nrun = {run}\nenv = {{AGENT_FOLDER = {env}}}\n'
    (project / "relay.toml").write_text(fleet)
    relay("trust", "relay.toml", cwd=project)
    said = "It starts a new conversation: the last one cannot be resumed"
    assert said not in relay("up", cwd=project).stdout
    wait_until(lambda: (claude.folder / "strings").exists() and claude.socket.exists())
    start(claude, FIRST, path="/none.jsonl")
    relay("down", cwd=project)
    assert said not in relay("up", "--dry-run", cwd=project).stdout
    assert said in relay("up", cwd=project).stdout
    start(claude, SECOND, path="/none.jsonl")
    relay("down", cwd=project)
    assert said not in relay("up", "--fresh", cwd=project).stdout


def test_a_crash_without_supervision_says_how_to_continue(shared: Relay) -> None:
    """If there is a conversation to resume; without a terminal, on the desktop. Success needs no words."""
    claude = Claude(shared, "Crashed").wrap(
        env={"CI": "1"}
    )  # there, a desktop notification becomes an entry in the journal
    transcript = claude.folder / "transcript.jsonl"
    start(claude, FIRST, path=str(transcript))

    def ends(code: int) -> list[str]:
        """Let it exit, and return what was said about its end since the last one."""
        before = len(claude.events("notice"))
        claude.exit(code)
        wait_until(lambda: claude.name not in [row["name"] for row in ps(shared)])
        return [each["text"] for each in claude.events("notice")[before:]]

    assert ends(3) == ["Crashed exited with 3."]
    assert len(claude.events("notification")) == 1
    transcript.write_text(PROMPT)
    shared("resume", "Crashed", env={"AGENT_FOLDER": str(claude.folder)})
    start(claude, FIRST, path=str(transcript))
    assert ends(3) == ["Crashed exited with 3. `relay resume Crashed` continues its conversation."]
    shared("resume", "Crashed", env={"AGENT_FOLDER": str(claude.folder)})
    start(claude, FIRST, path=str(transcript))
    assert ends(0) == []


def test_the_bus_answers_what_the_conversation_is(shared: Relay) -> None:
    """The answer is the same at the agent's end, and an event reports each change."""
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
    folder = shared.home / "project"
    folder.mkdir()
    claude = Claude(shared, "Asked").wrap(cwd=folder, env=session_patch(code))
    start(claude, FIRST, path="/folder/transcript.jsonl")
    claude.exit()
    ended = wait_until(lambda: [e["text"] for e in claude.events("notice") if "LAST" in e["text"]])
    assert ended == [f"LAST claude {FIRST} {folder} /folder/transcript.jsonl"]
    assert [e["text"] for e in claude.events("notice") if "CHANGED" in e["text"]] == [f"CHANGED {FIRST}"]


def test_a_program_without_conversations_shows_none(shared: Relay) -> None:
    FakeAgent(shared, "Alice").wrap()
    assert [row["session_id"] for row in ps(shared) if row["name"] == "Alice"] == [None]
    assert explained(shared, "Alice") == []


def test_explain_says_that_an_agent_cannot_resume(shared: Relay) -> None:
    patterns = shared.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "mine.toml").write_text('name = "mine"\n[native]\nhooks = "relay"\n')
    FakeAgent(shared, "Bob").wrap(options=("--agent", "mine"))
    assert explained(shared, "Bob") == [
        "Its conversation: cannot be resumed (its profile has no [resume] table)."
    ]


class Tracker:
    """A tracker for an agent whose transcript relay has named, and what it has published."""

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
        self.bus.publish(SessionBegan())

    @handles(ConversationChanged)
    def changed(self, event: ConversationChanged) -> None:
        self.found.append(event.conversation)

    async def asked(self) -> list[Conversation]:
        return await self.bus.ask(CurrentConversation())


def test_a_transcript_named_by_relay_gives_the_id_until_it_is_lost(tmp_path: Path) -> None:
    """As with Gemini without hooks: it saves nothing before the first prompt, and reports no /clear."""
    path = tmp_path / "session-1.jsonl"
    known = Conversation("gemini", FIRST, tmp_path, path)

    async def scene() -> None:
        tracker = Tracker(tmp_path)
        assert await tracker.asked() == []
        (tmp_path / "session-0.jsonl").write_text('{"sessionId": "another"}\n')
        assert await tracker.asked() == [], "this file is another agent's"
        path.write_text(f'{{"sessionId": "{FIRST}"}}\n')
        tracker.bus.publish(TextRead(()))
        assert tracker.found == [known] == await tracker.asked()
        later = Tracker(tmp_path, resumed=True)
        assert await later.asked() == [known]
        later.bus.publish(RecordLost("it contains nothing of what the agent does"))
        assert later.found == [None] and await later.asked() == []
        assert await Tracker(tmp_path, resumed=True).asked() == []

    asyncio.run(scene())
