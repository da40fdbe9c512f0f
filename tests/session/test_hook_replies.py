"""The outcome of a reply to an agent's hook (printed, unknown, or never sent), and its content."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from injection.ptyagent import PtyAgent, fake, running
from relay.agents.events import TextRead
from relay.agents.hook_event import NativeEvent, NativeName
from relay.agents.hook_reply import Reply
from relay.agents.kind import AgentKind
from relay.agents.transcript_reader import TranscriptReader
from relay.control.operations import operations
from relay.directives.hearing import EarlierSessions, Hearing
from relay.errors import RelayError
from relay.eventbus import EventBus, answers, handles
from relay.features.derived_rules import DerivedRules
from relay.features.handler_runner import HandlerRunner
from relay.features.hook_responder import HookResponder
from relay.features.native_hooks import NativeHooks
from relay.features.onboarding import TOOLS, Onboarding
from relay.features.requests import Requests
from relay.features.turn_tracker import TurnTracker
from relay.home import Home
from relay.hooks import events
from relay.hooks.context import Context, History, MemoryService
from relay.hooks.events import HandlerEvent
from relay.hooks.registry import Registry
from relay.hooks.result import HookResult, decide
from relay.hooks.runner import Runner
from relay.injection.events import Compose, Inject
from relay.injection.injection import Injection
from relay.lifecycle import Identity, SessionBegan
from relay.policy import Policy
from relay.rules.event import RuleEvent
from relay.rules.events import Consult, GuardedEvents, HasRules, Results
from relay.state.continuations import Continuations
from relay.state.states import AgentState
from relay.state.turn import Turn
from relay.storage.journal import Journal
from relay.storage.progress import Progress
from relay.tasks import Tasks
from relay.terminal.events import Notify
from support import listening

PROMPTING = fake("lines", "--ask", "Install? [Y/n] ")
LESSON = "You are Ann."


class Rules:
    """Rules that answer `results` to each event; with `fault`, asking them fails."""

    def __init__(self) -> None:
        self.results: list[HookResult] = []
        self.fault = False

    @answers(Consult)
    async def consult(self, question: Consult, _: object) -> tuple[HookResult, ...] | None:
        if question.rules is None:
            return None
        if self.fault:
            raise ValueError("an error of relay's own")
        return tuple(self.results)

    @answers(HasRules)
    async def has_rules(self, _: HasRules, __: object) -> bool:
        return True

    @answers(GuardedEvents)
    async def guarded(self, _: GuardedEvents, __: object) -> frozenset[NativeName]:
        return frozenset({NativeName.TOOL_PRE})


class Session:
    """A session's hooks and control socket, for an agent that shows a prompt: nothing is typed.

    asked:   the events that handlers were asked about; they answer once `answers` is set.
    handle:  the handlers' answer.
    emitted: texts found in the agent's transcript. injected: what hooks gave the agent.
    """

    def __init__(self, agent: PtyAgent, folder: Path, group: asyncio.TaskGroup) -> None:
        self.agent = agent
        self.path = str(folder / "control")
        self.asked: list[HandlerEvent] = []
        self.emitted: list[str] = []
        self.injected: list[Injection] = []
        self.rules = Rules()
        self.answers = asyncio.Event()
        self.turn = turn = Turn(time.monotonic)
        bus, identity = agent.bus, Identity("id", "Ann", "default", folder)
        journal, tasks = Journal(folder / "journal", "id", "Ann"), Tasks(group, agent.bus)
        continuations = Continuations(bus, journal, turn, AgentState(agent.view, bus), 3)
        hooks = NativeHooks(
            bus,
            journal,
            turn,
            kind="claude",
            note="",
            record=TranscriptReader("claude"),
            most=3,
            progress=Progress(folder / "progress", resumed=False),
        )
        home = Home.from_env({"RELAY_HOME": str(folder)})
        own = os.getpid()
        listener = listening(Path(self.path))
        requests = Requests(
            bus,
            journal,
            identity,
            home,
            listener,
            agent="claude",
            pid=own,
            terminal_pid=own,
            restarts=0,
            shown_to=None,
        )
        for feature in (
            hooks,
            TurnTracker(
                bus, tasks, turn, continuations, identity, known=True, hooked=True, recorded=True, named=False
            ),
            self.rules,
            Onboarding(
                bus,
                tasks,
                identity,
                template=LESSON,
                prefix="@",
                hooked=True,
                on_screen=True,
                spawns=False,
                tools=True,
            ),
            HookResponder(bus, journal, turn, continuations, Policy()),
            self,
        ):
            bus.add(feature)
        requests.offer(operations([hooks]))
        requests.begin(SessionBegan())
        self.serving = group.create_task(requests.run())

    async def handle(self, event: HandlerEvent) -> list[HookResult]:
        await self.answers.wait()
        return []

    @answers(Consult)
    async def consult(self, question: Consult, earlier: Sequence[Results]) -> tuple[HookResult, ...] | None:
        refused = decide(each for results in earlier for each in results).refused
        if question.handlers is None or refused:
            return None
        self.asked.append(question.handlers)
        return tuple(await self.handle(question.handlers))

    @handles(TextRead)
    def read(self, event: TextRead) -> None:
        self.emitted += [each.text for each in event.texts]

    @handles(Inject)
    def inject(self, event: Inject) -> None:
        if event.injection.kind == "hook":
            self.injected.append(event.injection)

    # The agent's side.

    async def hook(self, event: str, *, kind: str = "claude", **payload: Any) -> socket.socket:
        """Send a request as a hook client of an agent of `kind`; return the connection, with nothing read."""
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, self.path)
        fields = {"op": "hook", "agent": kind, "event": event, "decide": True}
        request = json.dumps({**fields, "payload": json.dumps(payload)})
        await loop.sock_sendall(client, request.encode() + b"\n")
        return client

    async def hook_output(self, event: str, **payload: Any) -> str:
        """Return what a client prints, and report it as printed."""
        client = await self.hook(event, **payload)
        loop, said = asyncio.get_running_loop(), b""
        while not said.endswith(b"\n"):
            said += await loop.sock_recv(client, 1 << 16)
        await loop.sock_sendall(client, b'{"op": "hook_printed"}\n')
        await loop.sock_recv(client, 1 << 16)
        client.close()
        return str(json.loads(said)["stdout"])


def run_play(tmp_path: Path, play: Any) -> None:
    """Run play(session, agent) with a waiting message."""

    async def main() -> None:
        async with running(PROMPTING, tmp_path) as agent:
            agent.submit("first")
            await agent.verdict("prompting")
            await agent.ended()
            agent.outcomes.clear()
            agent.submit("a message", id="waits")
            async with asyncio.TaskGroup() as group:
                session = Session(agent, tmp_path, group)
                await play(session, agent)
                session.serving.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("event", ["PostToolUse", "Stop"])
def test_a_message_not_sent_to_an_ended_hook_waits_again(tmp_path: Path, event: str) -> None:
    """R73: Esc ends a hook while a slow handler blocks it; the reply to the next hook has the message."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.hook_output("SessionStart", source="startup")
        session.answers.clear()
        client = await session.hook(event, tool_name="Bash", tool_input={})
        await agent.until(lambda: session.asked)
        client.close()
        session.answers.set()
        await agent.until(lambda: agent.deferred or agent.outcomes)
        assert agent.deferred == ["waits"] and not agent.outcomes
        assert "a message" in await session.hook_output("PostToolUse", tool_name="Bash", tool_input={})
        assert [(id, str(outcome.result)) for id, outcome in agent.outcomes] == [("waits", "injected")]

    run_play(tmp_path, play)


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_a_message_never_ranks_above_the_users_words(tmp_path: Path, kind: str) -> None:
    """B7: Codex gives its model context as a developer's words, but a text to continue with as the user's."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        agent.submit("a memory", kind="hook", source="@memory:search")
        await session.hook_output("UserPromptSubmit", kind=kind, prompt="do it")
        call = await session.hook_output("PostToolUse", kind=kind, tool_name="Bash", tool_input={})
        stop = await session.hook_output("Stop", kind=kind, last_assistant_message="Done.")
        for text in ("a message", "a memory"):
            assert [text in each for each in (call, stop)] == [kind == "claude", kind == "codex"]
        reply = json.loads(call if kind == "claude" else stop)
        assert reply["systemMessage"] == "relay: message from Alice"

    run_play(tmp_path, play)


def test_an_onboarding_text_that_was_not_sent_is_still_due(tmp_path: Path) -> None:
    async def play(session: Session, agent: PtyAgent) -> None:
        client = await session.hook("PostToolUse", tool_name="Bash", tool_input={})
        await agent.until(lambda: session.asked)
        client.close()
        session.answers.set()
        await agent.until(lambda: agent.deferred)
        taught = await session.hook_output("UserPromptSubmit", prompt="again")
        assert f"{LESSON}\n{TOOLS}" in json.loads(taught)["hookSpecificOutput"]["additionalContext"]
        assert LESSON not in await session.hook_output("UserPromptSubmit", prompt="and again")

    run_play(tmp_path, play)


def test_the_event_of_a_client_that_timed_out_still_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session was busy for longer than the client waits."""

    async def play(session: Session, agent: PtyAgent) -> None:
        client = await session.hook("PostToolUse", tool_name="Bash", tool_input={})
        client.close()
        await agent.until(lambda: session.asked)
        assert session.turn.active

    run_play(tmp_path, play)
    assert not caplog.records


def test_a_late_first_hook_repeats_no_text_read_from_the_screen(tmp_path: Path) -> None:
    """For example, the first events may reach the session late on a busy machine."""
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
        await session.hook_output("PreToolUse", **tool)
        say("late")
        await session.hook_output("PostToolUse", **tool)
        assert session.emitted == ["late"]

    run_play(tmp_path, play)


def test_a_nested_agent_gets_none_of_the_agents_messages(tmp_path: Path) -> None:
    """A Qwen Code in the shell of another one inherits its hooks."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        mine: dict[str, Any] = {"kind": "qwen", "session_id": "1"}
        nested: dict[str, Any] = {"kind": "qwen", "session_id": "2"}
        turn = session.turn
        await session.hook_output("SessionStart", **mine, source="startup")
        turn.take(NativeEvent(NativeName.PROMPT_SUBMIT, "qwen", prompt="do it"))
        for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"):
            assert not await session.hook_output(
                event, **nested, source="startup", prompt="p", tool_name="Bash"
            )
        assert turn.active and [each["content"] for each in turn.messages] == ["do it"]
        assert "a message" in await session.hook_output("PostToolUse", **mine, tool_name="Bash")
        await session.hook_output("SessionStart", **nested, source="clear")  # the same agent
        assert not turn.active

    run_play(tmp_path, play)


def test_messages_of_a_reply_that_cannot_be_rendered_wait_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, a reply that is nested too deeply."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.hook_output("SessionStart", source="startup")

        def fails(kind: AgentKind, event: NativeEvent, reply: Reply) -> str:
            raise RecursionError

        with monkeypatch.context() as patch:
            patch.setattr(AgentKind, "render", fails)
            assert not await session.hook_output("PostToolUse", tool_name="Bash")
        assert "a message" in await session.hook_output("PostToolUse", tool_name="Bash")

    run_play(tmp_path, play)


DENIED = HookResult("deny", reason="never", source="guard")


def test_a_nested_agent_is_guarded_by_the_same_rules(tmp_path: Path) -> None:
    """R36: a Qwen Code in the shell of another one calls the same hooks."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.hook_output("SessionStart", kind="qwen", session_id="1", source="startup")
        session.turn.take(NativeEvent(NativeName.PROMPT_SUBMIT, "qwen", prompt="do it"))
        session.rules.results.append(DENIED)
        nested: dict[str, Any] = {"kind": "qwen", "session_id": "2", "tool_name": "Bash"}
        assert "never" in await session.hook_output("PreToolUse", **nested)
        assert not await session.hook_output("PostToolUse", **nested)
        assert not session.asked  # handlers run only for the agent itself

    run_play(tmp_path, play)


def test_rules_are_not_asked_again_about_text_from_relay(tmp_path: Path) -> None:
    """R38: Codex submits continuations as a prompt, and rules were asked before relay typed it."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.hook_output("SessionStart", source="startup")
        stopped = json.loads(await session.hook_output("Stop", last_assistant_message="done"))
        given = stopped["hookSpecificOutput"]["additionalContext"]
        assert "a message" in given
        session.rules.results.append(DENIED)
        assert not await session.hook_output("UserPromptSubmit", prompt=given)
        assert "never" in await session.hook_output("UserPromptSubmit", prompt=f"my own words\n{given}")
        assert "never" in await session.hook_output("UserPromptSubmit", prompt="my own words")

    run_play(tmp_path, play)


def test_a_tool_call_is_refused_if_rules_cannot_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R36, R80"""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        await session.hook_output("SessionStart", source="startup")
        session.rules.fault = True
        assert "could not run" in await session.hook_output("PreToolUse", tool_name="Bash")
        assert not await session.hook_output("PostToolUse", tool_name="Bash")

    run_play(tmp_path, play)
    assert "an error of relay's own" in caplog.text


def test_a_prompt_that_rules_did_not_check_is_reported(tmp_path: Path) -> None:
    """R80: the injector types it anyway."""
    notices: list[str] = []

    class Screen:
        @handles(Notify)
        def show(self, event: Notify) -> None:
            notices.append(event.text)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            bus, rules = EventBus(), Rules()
            rules.fault = True
            identity = Identity("id", "Ann", "default", tmp_path)
            progress = Progress(tmp_path / "progress", resumed=False)
            derived_rules = DerivedRules(bus, Tasks(group, bus), identity, progress, hooked=False)
            for feature in (rules, derived_rules, Screen()):
                bus.add(feature)
            with pytest.raises(ValueError, match="of relay's own"):
                await bus.ask(Compose((Injection("1", "hello", "Bob"),)))

    asyncio.run(main())
    assert len(notices) == 1 and "not checked" in notices[0]


def test_a_halt_stops_calls_whose_handlers_still_run(tmp_path: Path) -> None:
    """R15: agents call tools in parallel."""

    async def play(session: Any, agent: PtyAgent) -> None:
        async def handle(event: HandlerEvent) -> list[HookResult]:
            match event:
                case events.ToolPre(tool_name="Slow"):
                    began.set()
                    await session.answers.wait()
                case events.ToolPre():
                    return [HookResult("halt", reason="enough")]
            return []

        session.handle = handle
        began = asyncio.Event()
        slow = asyncio.create_task(session.hook_output("PreToolUse", tool_name="Slow", tool_input={}))
        await began.wait()
        await session.hook_output("PreToolUse", tool_name="Bash", tool_input={})
        session.answers.set()
        said = json.loads(await slow)["hookSpecificOutput"]
        assert (said["permissionDecision"], said["permissionDecisionReason"]) == ("deny", "enough")

    run_play(tmp_path, play)


@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit"])
def test_a_refusal_by_rules_waits_for_no_handler(tmp_path: Path, event: str) -> None:
    """R24, R36: an agent waits only so long for an answer, and then continues."""

    async def main() -> None:
        registry, bus, asked = Registry(), EventBus(), list[str]()
        registry.add_event("tool_pre", lambda event: asked.append(event.tool_name))
        registry.add_event("prompt_submit", lambda event: asked.append(event.prompt))
        rules, history = Rules(), History()
        rules.results = [DENIED]
        context = Context(
            agent_id="",
            agent_name="Ann",
            session_id="id",
            working_dir=tmp_path,
            env={},
            bus=bus,
            memory=MemoryService(RelayError("none")),
            history=history,
        )
        async with asyncio.TaskGroup() as group:
            runner = Runner(registry, bus)
            journal = Journal(tmp_path / "journal", "id", "Ann")
            tasks, progress = Tasks(group, bus), Progress(tmp_path / "progress", resumed=False)
            nothing = Hearing(frozenset(), frozenset(), subagents=False, prefix="@", form="")
            earlier = EarlierSessions(progress, nothing, 0)
            handlers = HandlerRunner(
                *(bus, tasks, journal, runner, context, history),
                hooked=True,
                progress=progress,
                earlier=earlier,
            )
            for feature in (rules, handlers):
                bus.add(feature)
            handled = events.ToolPre("Bash", {}) if event == "PreToolUse" else events.PromptSubmit("do it")
            for results, expected in (([DENIED], []), ([], ["Bash" if event == "PreToolUse" else "do it"])):
                rules.results = results
                await bus.ask(Consult(RuleEvent(event), handled))
                assert asked == expected
            runner.close()

    asyncio.run(main())


@pytest.mark.parametrize(("halts", "wakes"), [(True, False), (False, True)])
@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "PostToolUseFailure"])
def test_text_for_a_stopped_turn_starts_no_turn(tmp_path: Path, event: str, halts: bool, wakes: bool) -> None:
    """R15, R73: otherwise relay would type the text, and the agent would continue."""

    async def play(session: Any, agent: PtyAgent) -> None:
        async def handle(event: HandlerEvent) -> list[HookResult]:
            return [HookResult.inject("line 3 is bad"), *([HookResult("halt", reason="enough")] * halts)]

        session.handle = handle
        await session.hook_output(event, tool_name="Bash", tool_input={})
        assert session.injected and all(each.wakes is wakes for each in session.injected)

    run_play(tmp_path, play)


def test_only_a_refused_prompt_is_marked(tmp_path: Path) -> None:
    """R39, R40."""

    async def play(session: Session, agent: PtyAgent) -> None:
        session.answers.set()
        session.rules.results = [DENIED]
        prompt = json.loads(await session.hook_output("UserPromptSubmit", prompt="do it"))
        assert prompt["reason"] == "[Blocked by hook] never"
        call = json.loads(await session.hook_output("PreToolUse", tool_name="Bash", tool_input={}))
        assert call["hookSpecificOutput"]["permissionDecisionReason"] == "never"

    run_play(tmp_path, play)
