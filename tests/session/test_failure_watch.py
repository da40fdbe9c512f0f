"""When a turn counts as failed: one event per failure, from the best source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from relay.agents import kinds, updates
from relay.agents.catalog import made
from relay.agents.events import AgentFailed, FailureRead, HookReported, LastFailure
from relay.agents.failure import Failure
from relay.agents.hook_event import NativeEvent
from relay.agents.transcript_lines import Failed
from relay.eventbus import Event, EventBus, handles
from relay.features import failure_watch
from relay.features.failure_watch import FailureWatch
from relay.lifecycle import Describe, SessionBegan
from relay.state.agent_terminal import AgentTerminal
from relay.state.events import HooksAlive, PromptSubmitted, StateChanged, TurnDrawn
from relay.state.readiness import PromptKind, Readiness, Verdict
from relay.state.states import AgentState
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.terminal.events import AgentExited, OutputEnded

ZONE = ZoneInfo("America/New_York")
NOW = datetime(2026, 11, 25, 15, 0, tzinfo=ZONE).timestamp()
EIGHT = datetime(2026, 11, 25, 20, 0, tzinfo=ZONE).timestamp()
PROFILES = {profile.name: profile for profile in made(updates.shipped(), {})}
LIMIT = "You've hit your session limit · resets 8pm (America/New_York)"
CODEX_LIMIT = "You’ve hit your usage limit. Visit https://x to purchase more credits or try again in 2 hours."
FULL = "Codex ran out of room in the model's context window."
BOX = ["", "─" * 40, "❯ ", "─" * 40]
SHOWN = [f"  ⎿  {LIMIT}", *BOX]
CODEX_SHOWN = [
    "■ You’ve hit your usage limit. Visit https://x to",
    "purchase more credits or try again in 2 hours.",
]
FAILED = Verdict(Readiness.FAILED, "it shows an error", rule="error", lines=("■ it went wrong", "› "))
READY = Verdict(Readiness.READY, "its input box is visible", rule="empty input")
REPORTED = Verdict(Readiness.FAILED, "it reports that it failed: You've hit your session limit")
WORKING = Verdict(Readiness.WORKING, "its screen shows that it is working", rule="spinner")
DIALOG = Verdict(Readiness.PROMPTING, "it shows a dialog", kind=PromptKind.OTHER, rule="dialog")
BY_HOOK = Failure("rate_limited", LIMIT, EIGHT, "hook")


class World:
    """The agent's terminal and state, and a listener for the failures that the watch publishes."""

    def __init__(self, folder: Path, kind: str = "claude") -> None:
        self.kind = kind
        self.folder = folder
        self.rows: list[str] = []
        self.verdict: Verdict | None = READY
        self.failures: list[Failure] = []

    def screen_text(self) -> list[str]:
        return self.rows

    @handles(AgentFailed)
    def failed(self, event: AgentFailed) -> None:
        self.failures.append(event.failure)

    def session(self, *, resumed: bool = False) -> None:
        """Start a session with a new bus."""
        self.bus = EventBus()
        terminal, state = cast(AgentTerminal, self), cast(AgentState, self)
        journal = Journal(self.folder / "journal", "s", "Ann")
        progress = Progress(self.folder / "progress", resumed=resumed)
        profile = PROFILES[self.kind]
        watch = FailureWatch(self.bus, journal, profile, terminal, state, progress, clock=lambda: NOW)
        self.bus.add(watch)
        self.bus.add(self)
        self.publish(SessionBegan())

    def publish(self, *events: Event) -> None:
        for event in events:
            self.bus.publish(event)

    def hook(self, name: str, **fields: Any) -> None:
        event = kinds.find(self.kind).parse(name, json.dumps(fields))
        assert isinstance(event, NativeEvent)
        self.publish(HookReported(event, decides=True))

    def prompt(self, text: str = "go on") -> None:
        self.hook("BeforeAgent" if self.kind == "gemini" else "UserPromptSubmit", prompt=text)

    def stop_failure(self, text: str = LIMIT, error: str = "rate_limit") -> None:
        self.hook("StopFailure", error=error, last_assistant_message=text)

    def record(self, text: str, code: str = "") -> None:
        self.publish(FailureRead(Failed(text, code)))

    def shows(self, verdict: Verdict, *rows: str) -> None:
        self.rows, self.verdict = list(rows), verdict
        self.publish(StateChanged("working", str(verdict.state), verdict))

    async def grace(self) -> None:
        """Let every due timer run."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def last(self) -> Failure | None:
        return next(iter(await self.bus.ask(LastFailure())), None)

    def journal(self) -> list[dict[str, Any]]:
        path = self.folder / "journal"
        entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        assert all(entry["event"] == "agent_failed" for entry in entries)
        return entries


Scene = Callable[[World], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Return a function that runs a scene in a session; timers are due at once."""
    monkeypatch.setattr(failure_watch, "GRACE", 0.0)

    def run(scene: Scene, kind: str = "claude") -> World:
        world = World(tmp_path, kind)

        async def session() -> None:
            world.session()
            await scene(world)

        asyncio.run(session())
        return world

    return run


Play = Callable[..., World]


def test_a_hook_reports_a_failure_at_once_and_in_the_journal(play: Play) -> None:
    async def scene(world: World) -> None:
        world.prompt()
        assert await world.last() is None
        world.stop_failure()
        assert world.failures == [BY_HOOK] and await world.last() == BY_HOOK
        (described,) = await world.bus.ask(Describe(brief=False))
        assert described == {"failure": BY_HOOK.to_json()}
        assert await world.bus.ask(Describe(brief=True)) == []

    (entry,) = play(scene).journal()
    assert (entry["class"], entry["text"]) == ("rate_limited", LIMIT)
    assert (entry["reset_at"], entry["source"]) == (EIGHT, "hook")


def test_reports_from_all_sources_of_one_turn_are_one_failure(play: Play) -> None:
    """The sources are the transcript, the hook (twice each), and a screen that is redrawn."""

    async def scene(world: World) -> None:
        world.publish(HooksAlive(True))
        world.prompt()
        world.record(LIMIT, "rate_limit")
        world.stop_failure()
        world.stop_failure()
        world.record(LIMIT, "rate_limit")
        for _ in range(3):
            world.shows(FAILED, *SHOWN)
            await world.grace()
            world.shows(WORKING, *SHOWN)
        world.publish(AgentExited(1), OutputEnded())

    assert play(scene).failures == [BY_HOOK]


def test_the_better_source_wins_if_it_is_in_time(play: Play) -> None:
    async def scene(world: World) -> None:
        world.prompt()
        world.shows(FAILED, *CODEX_SHOWN)
        world.record(CODEX_LIMIT, "usage_limit_exceeded")
        await world.grace()

    found = Failure("rate_limited", CODEX_LIMIT, NOW + 7200, "transcript")
    assert play(scene, "codex").failures == [found]


def test_a_screen_alone_is_believed_after_the_grace_period(play: Play) -> None:
    async def scene(world: World) -> None:
        world.publish(PromptSubmitted(by_user=True))
        world.shows(FAILED, *CODEX_SHOWN)
        assert world.failures == []
        await world.grace()
        assert world.failures == [Failure("rate_limited", CODEX_LIMIT, NOW + 7200, "screen")]
        world.record(CODEX_LIMIT)  # a late transcript entry
        world.publish(PromptSubmitted(by_user=True))
        world.shows(FAILED, *CODEX_SHOWN)
        await world.grace()

    assert len(play(scene, "codex").failures) == 2


def test_without_hooks_a_failure_that_the_screen_reports_counts(play: Play) -> None:
    """Claude Code does, since 2.1.332. With hooks this does not count, as they report the failure."""

    async def scene(world: World) -> None:
        continues = "● Usage limit reached · set to continue automatically at 8pm"
        world.publish(HooksAlive(True))
        world.shows(REPORTED, SHOWN[0], "", continues, *BOX)
        await world.grace()
        assert world.failures == []
        world.publish(HooksAlive(False))
        world.shows(REPORTED, SHOWN[0], "", continues, *BOX)
        await world.grace()

    assert play(scene).failures == [replace(BY_HOOK, source="screen")]


def test_a_transcript_entry_after_the_next_prompt_is_not_a_second_failure(play: Play) -> None:
    async def scene(world: World) -> None:
        world.prompt()
        world.stop_failure()
        world.prompt("and now?")
        world.record(LIMIT, "rate_limit")
        await world.grace()
        assert world.failures == [BY_HOOK]
        world.record(LIMIT, "rate_limit")  # this turn failed as well, and no hook reported it
        await world.grace()

    assert play(scene).failures == [BY_HOOK, replace(BY_HOOK, source="transcript")]


def test_each_failed_turn_is_a_separate_failure(play: Play) -> None:
    async def scene(world: World) -> None:
        for text in ("one", "two"):
            world.prompt(text)
            world.stop_failure()
        world.prompt("three")
        world.record(LIMIT, "rate_limit")
        world.prompt("four")  # before the transcript was believed

    world = play(scene)
    assert world.failures == [BY_HOOK, BY_HOOK]  # that entry may still be about the second turn
    assert len(world.journal()) == 2


def test_a_failure_is_cleared_when_a_later_turn_succeeds(play: Play) -> None:
    async def scene(world: World) -> None:
        world.prompt()
        world.stop_failure()
        world.hook("Stop")  # same turn: does not count
        assert await world.last() == BY_HOOK
        world.prompt()
        assert await world.last() == BY_HOOK
        world.hook("Stop", agent_id="a1")  # from a subagent
        world.hook("UserPromptSubmit", prompt="x", agent_id="a1")
        assert await world.last() == BY_HOOK
        world.hook("Stop")
        assert await world.last() is None
        world.stop_failure("x", "unknown")
        assert (await world.last()) == Failure("other", "x", None, "hook")

    assert len(play(scene).failures) == 2


def test_a_failed_subagent_is_not_a_failure_of_the_agent(play: Play) -> None:
    async def scene(world: World) -> None:
        world.prompt()
        world.hook("StopFailure", error="rate_limit", agent_id="a1")

    assert play(scene).failures == []


def test_without_hooks_a_failure_is_cleared_by_a_turn_on_the_screen(play: Play) -> None:
    async def scene(world: World) -> None:
        world.publish(PromptSubmitted(by_user=True))
        world.shows(FAILED, *CODEX_SHOWN)
        await world.grace()
        world.publish(TurnDrawn())  # same turn
        assert await world.last() is not None
        world.publish(PromptSubmitted(by_user=True), TurnDrawn())
        assert await world.last() is None

    assert len(play(scene, "codex").failures) == 1


def test_an_error_from_which_the_agent_recovers_is_not_a_failure(play: Play) -> None:
    """Claude Code writes an interrupted answer as an error, and continues."""

    async def scene(world: World) -> None:
        world.prompt()
        world.record("API Error: Claude's response exceeded the output token maximum.", "max_output_tokens")
        world.hook("Stop")
        await world.grace()

    assert play(scene).failures == []


def test_geminis_stop_hook_does_not_clear_an_error(play: Play) -> None:
    key = "[API Error: 400 API key not valid. Please pass a valid API key.]"
    found = Failure("unauthorized", key, None, "transcript")

    async def scene(world: World) -> None:
        world.prompt()
        world.record(key)
        world.hook("AfterAgent")
        await world.grace()
        assert world.failures == [found] and await world.last() == found
        world.prompt()
        world.hook("AfterAgent")
        world.record(key)
        assert await world.last() == found
        world.prompt()
        world.hook("AfterAgent")
        assert await world.last() is None

    assert play(scene, "gemini").failures == [found, found]


def test_a_transient_screen_is_not_a_failure(play: Play) -> None:
    async def scene(world: World) -> None:
        world.publish(PromptSubmitted(by_user=True))
        world.shows(FAILED, *CODEX_SHOWN)
        world.shows(WORKING, "• Working (0s • esc to interrupt)")
        await world.grace()

    assert play(scene, "codex").failures == []


def test_an_unknown_error_has_the_class_other(play: Play) -> None:
    async def scene(world: World) -> None:
        world.shows(FAILED, "■ it went wrong", "", "› ")
        await world.grace()

    assert play(scene, "codex").failures == [Failure("other", "it went wrong", None, "screen")]


def test_a_failure_that_hooks_report_is_not_read_from_the_screen(play: Play) -> None:
    """A state that no screen rule decided has no text on the screen."""

    async def scene(world: World) -> None:
        world.publish(HooksAlive(True))
        world.shows(Verdict(Readiness.FAILED, "its hooks say that it failed"), *CODEX_SHOWN)
        await world.grace()

    assert play(scene, "codex").failures == []


def test_without_hooks_claudes_limit_dialog_is_a_failure(play: Play) -> None:
    """Only without hooks: with hooks, any tool's output may be above a dialog."""
    dialog = [
        f"  ⎿  {LIMIT}",
        "",
        "❯ /rate-limit-options",
        "─" * 40,
        "  What do you want to do?",
        "  ❯ 1. Stop",
    ]

    async def scene(world: World) -> None:
        world.publish(HooksAlive(True))
        world.shows(DIALOG, *dialog)
        await world.grace()
        assert world.failures == []
        world.publish(HooksAlive(False))
        world.shows(DIALOG, *dialog)
        await world.grace()

    assert play(scene).failures == [replace(BY_HOOK, source="screen")]


@pytest.mark.parametrize("first", ["exit", "output"])
@pytest.mark.parametrize(
    ("code", "interactive", "count"), [(1, False, 1), (0, False, 0), (137, False, 0), (1, True, 0)]
)
def test_a_noninteractive_program_that_exits_with_an_error_has_failed(
    play: Play, code: int, interactive: bool, count: int, first: str
) -> None:
    """`claude -p` does this. The last lines of an interactive program may be from anything."""
    ends: list[Event] = [AgentExited(code), OutputEnded()]

    async def scene(world: World) -> None:
        if interactive:
            world.shows(READY, *BOX)
        world.rows, world.verdict = [LIMIT, ""], None
        world.publish(*(ends if first == "exit" else reversed(ends)))
        assert await world.last() == (replace(BY_HOOK, source="exit") if count else None)

    assert len(play(scene).failures) == count


def test_a_pending_failure_counts_when_the_agent_exits(play: Play) -> None:
    """A failure waiting for a better source is not lost."""

    async def scene(world: World) -> None:
        world.publish(PromptSubmitted(by_user=True))
        world.shows(FAILED, *CODEX_SHOWN)
        world.verdict = None
        world.publish(AgentExited(1))
        assert await world.last() == Failure("rate_limited", CODEX_LIMIT, NOW + 7200, "screen")

    play(scene, "codex")


@pytest.mark.parametrize("ended_well", [False, True])
def test_a_replacement_session_repeats_no_failure(play: Play, ended_well: bool) -> None:
    """The next session reads the same output again, with the screen in its current state."""

    async def scene(world: World) -> None:
        world.prompt()
        world.stop_failure()
        if ended_well:
            world.prompt()
            world.hook("Stop")
        world.session(resumed=True)
        world.shows(READY if ended_well else FAILED, *SHOWN)
        await world.grace()
        world.publish(HooksAlive(True))
        assert await world.last() == (None if ended_well else BY_HOOK)
        assert world.failures == [BY_HOOK]
        world.prompt()
        world.stop_failure()

    world = play(scene)
    assert world.failures == [BY_HOOK, BY_HOOK]
    assert len(world.journal()) == 2


def test_a_failure_between_two_sessions_is_reported_by_the_next(play: Play) -> None:
    async def scene(world: World) -> None:
        world.publish(PromptSubmitted(by_user=True))
        world.session(resumed=True)
        world.shows(FAILED, *CODEX_SHOWN)
        await world.grace()

    assert len(play(scene, "codex").failures) == 1
