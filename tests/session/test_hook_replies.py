"""What becomes of a reply to an agent's hook: printed, unknown, or never sent."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from injection.ptyagent import PtyAgent, fake, running
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.transcript_formats import Said
from relay.control.server import ControlServer
from relay.hooks import events
from relay.hooks.result import HookResult
from relay.injection.injection import Injection
from relay.policy import Policy
from relay.rules.aggregate import Fired
from relay.rules.answer import RuleRun
from relay.rules.event import RuleEvent
from relay.rules.rule import Rule
from relay.session.native import Bridge, NativeHooks
from relay.session.requests import Requests
from relay.session.turns import Turns
from relay.storage.journal import Journal

ASKS = fake("lines", "--ask", "Install? [Y/n] ")
LESSON = "You are Ann."


class Session:
    """A session's hooks and its control socket, for an agent that asks something: nothing is typed.

    asked: the events whose handlers were called; they answer once `answers` is set.
    said:  what was heard.
    rules: what rules answer to each event. fault: nobody can ask them.
    """

    def __init__(self, agent: PtyAgent, folder: Path) -> None:
        self.agent = agent
        self.path = str(folder / "control")
        self.asked: list[events.Event] = []
        self.said: list[str] = []
        self.rules: list[RuleRun] = []
        self.fault = False
        self.answers = asyncio.Event()
        self.journal = Journal(folder / "journal", "id", "Ann", print)
        self.native = NativeHooks(
            self,
            agent.injector,
            self.journal,
            Bridge("claude"),
            transcript="claude",
            continuations=3,
            policy=Policy(),
            lesson=lambda: LESSON,
        )
        session: Any = SimpleNamespace(
            pty=SimpleNamespace(pid=os.getpid()),
            native=self.native,
            journal=self.journal,
            ruling=SimpleNamespace(has=lambda name: True),
            tell_person=self.tell_person,
        )
        self.server = ControlServer(self.path, Requests(session).answer)

    # relay.session.native.Host

    def on_bridge_alive(self) -> None: ...

    def on_bridge_event(self) -> None: ...

    def on_turn(self) -> None: ...

    def is_ready(self) -> bool:
        return False

    def on_said(self, said: Sequence[Said]) -> None:
        self.said += [each.text for each in said]

    def tell_person(self, text: str) -> None: ...

    def inject(self, result: HookResult, *, event: str, place: str = "", wakes: bool | None = None) -> None:
        raise AssertionError("no handler answers anything")

    async def fire(self, event: RuleEvent | None) -> Fired:
        if self.fault:
            raise ValueError("an error of relay's own")
        return Fired(event or RuleEvent(""), tuple(self.rules if event else ()))

    def note(self, fired: Fired, outcome: str = "", **fields: Any) -> None: ...

    def observe(self, event: RuleEvent | None) -> None: ...

    async def ask(self, event: events.Event) -> list[HookResult]:
        self.asked.append(event)
        await self.answers.wait()
        return []

    # The agent's side.

    async def hook(self, event: str, *, kind: str = "claude", **payload: Any) -> socket.socket:
        """Have a client of the agent's, of `kind`, ask; the connection, on which nothing was read."""
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, self.path)
        fields = {"op": "hook", "agent": kind, "event": event, "decide": True}
        request = json.dumps({**fields, "payload": json.dumps(payload)})
        await loop.sock_sendall(client, request.encode() + b"\n")
        return client

    async def called(self, event: str, **payload: Any) -> str:
        """What a client prints, which then says so."""
        client = await self.hook(event, **payload)
        loop, said = asyncio.get_running_loop(), b""
        while not said.endswith(b"\n"):
            said += await loop.sock_recv(client, 1 << 16)
        await loop.sock_sendall(client, b'{"op": "hook_printed"}\n')
        await loop.sock_recv(client, 1 << 16)
        client.close()
        return str(json.loads(said)["stdout"])


def played(tmp_path: Path, play: Any) -> None:
    """Run play(session, agent) with a message that waits."""

    async def main() -> None:
        async with running(ASKS, tmp_path) as agent:
            agent.submit("first")
            await agent.verdict("prompting")
            await agent.ended()
            agent.outcomes.clear()
            agent.submit("a message", id="waits")
            session = Session(agent, tmp_path)
            session.server.listen()
            serving = asyncio.create_task(session.server.run())
            try:
                await play(session, agent)
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving

    asyncio.run(main())


@pytest.mark.parametrize("event", ["PostToolUse", "Stop"])
def test_what_a_hook_that_has_gone_was_not_sent_waits_again(tmp_path: Path, event: str) -> None:
    """R73: an Esc ends the hook that a slow handler keeps waiting; the next one carries the message."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.called("SessionStart", source="startup")
        session.answers.clear()
        client = await session.hook(event, tool_name="Bash", tool_input={})
        await agent.until(lambda: session.asked)
        client.close()
        session.answers.set()
        await agent.until(lambda: agent.deferred or agent.outcomes)
        assert agent.deferred == ["waits"] and not agent.outcomes
        assert "a message" in await session.called("PostToolUse", tool_name="Bash", tool_input={})
        assert [(id, str(outcome.result)) for id, outcome in agent.outcomes] == [("waits", "injected")]

    played(tmp_path, play)


def test_a_lesson_that_was_not_sent_is_still_due(tmp_path: Path) -> None:
    async def play(session: Session, agent: PtyAgent) -> None:
        client = await session.hook("PostToolUse", tool_name="Bash", tool_input={})
        await agent.until(lambda: session.asked)
        client.close()
        session.answers.set()
        await agent.until(lambda: agent.deferred)
        assert LESSON in await session.called("UserPromptSubmit", prompt="again")
        assert LESSON not in await session.called("UserPromptSubmit", prompt="and again")

    played(tmp_path, play)


def test_a_client_that_has_given_up_has_told_its_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session was busy for longer than a client waits."""

    async def play(session: Session, agent: PtyAgent) -> None:
        client = await session.hook("PostToolUse", tool_name="Bash", tool_input={})
        client.close()
        await agent.until(lambda: session.asked)
        assert session.native.turn.active

    played(tmp_path, play)
    assert not caplog.records


def test_hooks_that_speak_late_repeat_nothing_that_was_read_on_the_screen(tmp_path: Path) -> None:
    """As where a busy machine kept the first events from the session."""
    transcript = tmp_path / "transcript.jsonl"

    def say(text: str) -> None:
        message = {"model": "m", "content": [{"type": "text", "text": text}]}
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        with transcript.open("a") as file:
            print(
                json.dumps({"type": "assistant", "uuid": text, "timestamp": time, "message": message}),
                file=file,
            )

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        say("early")
        tool = {"tool_name": "Bash", "tool_input": {}, "transcript_path": str(transcript)}
        await session.called("PreToolUse", **tool)
        say("late")
        await session.called("PostToolUse", **tool)
        assert session.said == ["late"]

    played(tmp_path, play)


def test_an_agent_that_the_agent_has_started_gets_none_of_its_messages(tmp_path: Path) -> None:
    """Qwen's hooks are inherited by a qwen in its own shell."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        mine: dict[str, Any] = {"kind": "qwen", "session_id": "1"}
        nested: dict[str, Any] = {"kind": "qwen", "session_id": "2"}
        turn = session.native.turn
        await session.called("SessionStart", **mine, source="startup")
        turn.take(NativeEvent(NativeName.PROMPT_SUBMIT, "qwen", prompt="do it"))
        for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"):
            assert not await session.called(event, **nested, source="startup", prompt="p", tool_name="Bash")
        assert turn.active and [each["content"] for each in turn.messages] == ["do it"]
        assert "a message" in await session.called("PostToolUse", **mine, tool_name="Bash")
        await session.called("SessionStart", **nested, source="clear")  # the same agent, after all
        assert not turn.active

    played(tmp_path, play)


def denying() -> RuleRun:
    """A rule that denies whatever it is asked about."""
    rule = Rule("1", "guard", "PreToolUse", "command", "flat", Path("hooks.json"), 1)
    return RuleRun(rule, results=(HookResult("deny", reason="never", source="guard"),))


def test_an_agent_that_the_agent_has_started_is_guarded_by_its_rules(tmp_path: Path) -> None:
    """R36: a qwen in a qwen's shell calls the same hooks."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.called("SessionStart", kind="qwen", session_id="1", source="startup")
        session.native.turn.take(NativeEvent(NativeName.PROMPT_SUBMIT, "qwen", prompt="do it"))
        session.rules.append(denying())
        nested: dict[str, Any] = {"kind": "qwen", "session_id": "2", "tool_name": "Bash"}
        assert "never" in await session.called("PreToolUse", **nested)
        assert not await session.called("PostToolUse", **nested)
        assert not session.asked  # handlers are the agent's own

    played(tmp_path, play)


def test_rules_are_not_asked_again_about_what_relay_has_given(tmp_path: Path) -> None:
    """R38: Codex submits as a prompt what it goes on with; of what relay types they were asked before."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.called("SessionStart", source="startup")
        given = json.loads(await session.called("Stop", last_assistant_message="done"))["reason"]
        assert "a message" in given
        session.rules.append(denying())
        assert not await session.called("UserPromptSubmit", prompt=given)
        assert "never" in await session.called("UserPromptSubmit", prompt=f"my own words\n{given}")
        assert "never" in await session.called("UserPromptSubmit", prompt="my own words")

    played(tmp_path, play)


def test_a_fault_of_our_own_is_no_way_around_rules(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R36, R80"""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.called("SessionStart", source="startup")
        session.fault = True
        assert "could not be asked" in await session.called("PreToolUse", tool_name="Bash")
        assert not await session.called("PostToolUse", tool_name="Bash")

    played(tmp_path, play)
    assert "an error of relay's own" in caplog.text


def test_rules_that_cannot_be_asked_about_a_prompt_are_told_of() -> None:
    """R80: the injector types it all the same."""
    told: list[str] = []

    async def fire(event: RuleEvent) -> Fired:
        raise ValueError("an error of relay's own")

    ruling = SimpleNamespace(has=lambda name: True, derived=lambda name, **data: RuleEvent(name, data))
    turns: Any = SimpleNamespace(_session=SimpleNamespace(ruling=ruling), fire=fire, tell_person=told.append)
    with pytest.raises(ValueError, match="of relay's own"):
        asyncio.run(Turns.on_prompt(turns, [Injection("1", "hello", "Bob")]))
    assert len(told) == 1 and "unchecked" in told[0]


def test_a_turn_is_stopped_for_a_call_whose_handlers_still_run(tmp_path: Path) -> None:
    """R15: agents call tools beside one another."""

    async def play(session: Any, agent: PtyAgent) -> None:
        async def ask(event: events.Event) -> list[HookResult]:
            match event:
                case events.ToolPre(tool_name="Slow"):
                    began.set()
                    await session.answers.wait()
                case events.ToolPre():
                    return [HookResult("halt", reason="enough")]
            return []

        session.ask, session.inject = ask, lambda *_, **__: None
        began = asyncio.Event()
        slow = asyncio.create_task(session.called("PreToolUse", tool_name="Slow", tool_input={}))
        await began.wait()
        await session.called("PreToolUse", tool_name="Bash", tool_input={})
        session.answers.set()
        said = json.loads(await slow)["hookSpecificOutput"]
        assert (said["permissionDecision"], said["permissionDecisionReason"]) == ("deny", "enough")

    played(tmp_path, play)


@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit"])
def test_what_rules_refuse_waits_for_no_handler(tmp_path: Path, event: str) -> None:
    """R24, R36: an agent waits for so long, and then does it."""
    guard = Rule("1", "guard", event, "command", "flat", tmp_path / "hooks.json", 1, command="exit 2")

    async def play(session: Any, agent: PtyAgent) -> None:
        async def fire(event: RuleEvent) -> Fired:
            return Fired(event, (RuleRun(guard, results=(HookResult("deny", reason="never"),)),))

        session.fire, session.inject = fire, lambda *_, **__: None
        assert "never" in await session.called(event, tool_name="Bash", tool_input={}, prompt="do it")
        assert not session.asked

    played(tmp_path, play)


@pytest.mark.parametrize(("stops", "wakes"), [(True, False), (False, None)])
@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PostToolUseFailure"])
def test_what_a_stopped_turn_is_told_begins_no_other(
    tmp_path: Path, event: str, stops: bool, wakes: bool | None
) -> None:
    """R15, R73: else relay would type it, and the agent would go on."""
    told = []

    async def play(session: Any, agent: PtyAgent) -> None:
        async def ask(event: events.Event) -> list[HookResult]:
            return [HookResult.inject("line 3 is bad"), *([HookResult("halt", reason="enough")] * stops)]

        def inject(result: HookResult, *, event: str, place: str = "", wakes: bool | None = None) -> None:
            told.append(wakes)

        session.ask, session.inject = ask, inject
        await session.called(event, tool_name="Bash", tool_input={})

    played(tmp_path, play)
    assert told and set(told) == {wakes}
