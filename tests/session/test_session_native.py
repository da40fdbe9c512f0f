"""What a session does with its agent's hooks: events, continuations, transcript, onboarding."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude, Json
from session.fake_agent import FakeAgent, messages, project, settings
from session.transcript import Transcript
from support import Relay, wait_until
from terminal.emulator import Emulator

pytestmark = pytest.mark.own_team

RECORD = """
from relay import on

@on("{event}")
def record(event, ctx):
    print("RECORDED", repr(event))
"""


def answer(call: Json) -> dict[str, Any]:
    """Return what the hook printed."""
    return dict(json.loads(call["stdout"])) if call["stdout"] else {}


def context(call: Json) -> str:
    return str(answer(call).get("hookSpecificOutput", {}).get("additionalContext", ""))


def recorded(claude: Claude, count: int = 1) -> str:
    """Return what the handler in RECORD printed when it was called for the `count`th time."""
    wait_until(
        lambda: len(claude.events("handler_printed")) == count, message=lambda: str(claude.events("notice"))
    )
    return str(claude.events("handler_printed")[-1]["text"])


Wrap = Callable[..., Claude]


@pytest.fixture
def wrap(shared: Relay) -> Iterator[Wrap]:
    """Yield what wraps an agent of its own name, in a project with the given relay.config.py."""
    wrapped = []

    def wrap(config: str = "") -> Claude:
        folder = project(shared, config) if config else None
        wrapped.append(Claude(shared, f"Ann{next(numbers)}"))
        return wrapped[-1].wrap(cwd=folder)

    yield wrap
    for claude in wrapped:
        shared("stop", "--now", claude.name, check=False)  # it may have ended


numbers = itertools.count(1)


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "transcript.jsonl")


def start_turn(claude: Claude, **fields: Any) -> Claude:
    claude.fire("SessionStart", source="startup", **fields)
    claude.fire("UserPromptSubmit", prompt="do it", **fields)
    return claude


def test_agent_end_has_the_outcome_and_the_last_message_of_the_turn(wrap: Wrap) -> None:
    """R1, R2, R3: None if it is empty. A failure of the model is its error."""
    claude = start_turn(wrap(RECORD.format(event="agent_end")))
    (stopped,) = claude.fire("Stop", last_assistant_message="All done.")
    assert not stopped["stdout"]
    text = recorded(claude, 1)
    assert "success=True" in text and "last_assistant_message='All done.'" in text
    assert "{'role': 'user', 'content': 'do it'}" in text
    assert "error=None" in text and "duration_ms=None" not in text
    claude.fire("UserPromptSubmit", prompt="do it again")
    claude.fire("Stop", last_assistant_message="")
    assert "last_assistant_message=None" in recorded(claude, 2)
    claude.fire("UserPromptSubmit", prompt="do it at last")
    claude.fire("StopFailure", error="overloaded_error", last_assistant_message="API Error: 529")
    text = recorded(claude, 3)
    assert "success=False" in text and "error='overloaded_error'" in text
    wait_until(lambda: claude.events("state")[-1]["state"] == "failed")


def test_handlers_are_called_before_and_after_a_tool(wrap: Wrap) -> None:
    """R54"""
    config = """
from relay import on

@on("tool_call")
def record(event):
    print(type(event).__name__, event.tool_name, event.tool_input["command"])
"""
    claude = start_turn(wrap(config))
    claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    claude.fire("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response="x")
    wait_until(lambda: len(claude.events("handler_printed")) == 2)
    printed = [str(e["text"]).strip() for e in claude.events("handler_printed")]
    assert printed == ["ToolPre Bash ls", "ToolPost Bash ls"]


def test_the_event_of_a_failed_tool_has_its_error(wrap: Wrap) -> None:
    """R37"""
    claude = start_turn(wrap(RECORD.format(event="tool_post")))
    claude.fire("PostToolUseFailure", tool_name="Bash", tool_input={"command": "false"}, error="Exit code 1")
    assert "error='Exit code 1'" in recorded(claude)


CONTINUES = """
from relay import on

@on("agent_end")
async def first(event, ctx):
    if event.last_assistant_message != "enough":
        ctx.inject_message(f"{ctx.session_key.startswith(ctx.agent_id)} {ctx.message_provider}")

@on("agent_end")
def silent(event, ctx):
    return None

@on("agent_end")
def second(event, ctx):
    if event.last_assistant_message != "enough":
        return "and this"
"""


def test_an_agent_continues_until_the_cap_is_reached(wrap: Wrap) -> None:
    """R4, R5, R6, R7, R8, R10: with the text of all handlers, in order; None adds nothing."""
    claude = start_turn(wrap(CONTINUES))
    for _ in range(3):
        (stopped,) = claude.fire("Stop", last_assistant_message="not yet")
        reason = answer(stopped)["hookSpecificOutput"]["additionalContext"]
        assert reason.index("True relay") < reason.index("and this")
    (stopped,) = claude.fire("Stop", last_assistant_message="not yet")
    assert not stopped["stdout"]
    (notice,) = [e for e in claude.events("notice") if "continuations" in e["text"]]
    assert "3 times" in notice["text"] and "continuations in relay.toml" in notice["text"]
    claude.fire("UserPromptSubmit", prompt="another")
    (stopped,) = claude.fire("Stop", last_assistant_message="not yet")
    assert answer(stopped)["hookSpecificOutput"]["additionalContext"]
    (stopped,) = claude.fire("Stop", last_assistant_message="enough")
    assert not stopped["stdout"]


def test_the_cap_is_configurable(relay: Relay) -> None:
    """R10, R28"""
    settings(relay, "continuations = 1\n")
    claude = start_turn(Claude(relay).wrap(cwd=project(relay, CONTINUES)))
    stops = [claude.fire("Stop", last_assistant_message="not yet")[0] for _ in range(2)]
    assert [bool(stop["stdout"]) for stop in stops] == [True, False]
    text = relay("explain", claude.name).stdout
    assert "relay has made it continue 1 time of at most 1" in text


def test_an_explicit_continue_needs_no_text(wrap: Wrap) -> None:
    """R8"""
    config = 'from relay import on\non("agent_end")(lambda ctx: {"continue": True})\n'
    claude = start_turn(wrap(config))
    (stopped,) = claude.fire("Stop", last_assistant_message="done?")
    assert "Go on." in answer(stopped)["hookSpecificOutput"]["additionalContext"]


def test_a_prompt_can_be_denied(wrap: Wrap) -> None:
    config = 'from relay import on\non("prompt_submit")(lambda prompt: {"deny": "not now"})\n'
    claude = wrap(config)
    claude.fire("SessionStart", source="startup")
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert (answer(submitted)["decision"], answer(submitted)["reason"]) == (
        "block",
        "[Blocked by hook] not now",
    )


def test_a_call_allowed_in_settings_needs_no_dialog(relay: Relay) -> None:
    """Plans and questions always need the user. Each use is logged."""
    settings(relay, 'allow = ["Bash(git status)", "ExitPlanMode"]\n')
    claude = start_turn(Claude(relay).wrap())
    (asked,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "git status"})
    assert answer(asked)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    (noted,) = claude.events("allowed")
    assert (noted["tool"], noted["rule"]) == ("Bash", "Bash(git status)")
    wait_until(lambda: claude.events("state")[-1]["state"] == "working")  # once the answer is sent
    for tool, tool_input in (("Bash", {"command": "git push"}), ("ExitPlanMode", {"plan": "x"})):
        (asked,) = claude.fire("PermissionRequest", tool_name=tool, tool_input=tool_input)
        assert not asked["stdout"]


def test_text_from_a_tool_handler_reaches_the_agent_before_its_next_step(wrap: Wrap) -> None:
    """R73"""
    config = 'from relay import on\non("tool_post")(lambda tool_name: f"{tool_name}: line 3 is bad")\n'
    claude = start_turn(wrap(config))
    (posted,) = claude.fire("PostToolUse", tool_name="Write", tool_input={}, tool_response="ok")
    assert "Write: line 3 is bad" in context(posted)
    injection = wait_until(lambda: claude.events("injection"))[-1]
    assert (injection["route"], injection["role"], injection["result"]) == ("native", "system", "injected")


def test_directives_are_read_from_the_transcript_not_the_screen(wrap: Wrap, transcript: Transcript) -> None:
    """Each directive counts once, also in a message before a tool call, but not in a code fence."""
    path = {"transcript_path": str(transcript.path)}
    claude = start_turn(wrap(), **path)
    transcript.say("First.\n\n@memory:save before the tool\n```\n@memory:save fenced\n```\n")
    claude.fire("PreToolUse", tool_name="Bash", tool_input={}, **path)
    transcript.say("@memory:save the last\x0b@memory:save no line of its own")
    claude.print("@memory:save drawn\n")
    claude.fire(
        "Stop", last_assistant_message="@memory:save the last\x0b@memory:save no line of its own", **path
    )
    wait_until(lambda: len(claude.events("directive")) >= 2, message=lambda: str(claude.events("directive")))
    claude.exit()
    wait_until(lambda: claude.events("session_end"))
    bodies = [e["body"] for e in claude.events("directive")]
    assert bodies == ["before the tool", "the last\x0b@memory:save no line of its own"]


@pytest.mark.parametrize("policy", ["ignore", "act"])
def test_a_subagents_directives_count_only_if_configured(
    relay: Relay, transcript: Transcript, policy: str
) -> None:
    settings(relay, f'subagents = "{policy}"\n')
    path = {"transcript_path": str(transcript.path)}
    claude = start_turn(Claude(relay).wrap(), **path)
    claude.fire(
        "SubagentStop",
        agent_id="a1",
        agent_type="Explore",
        last_assistant_message="@memory:save from below",
        **path,
    )
    wait_until(lambda: claude.events("subagent_said"), message=lambda: str(claude.events("hook")))
    transcript.say("@memory:save from above")
    claude.fire("Stop", last_assistant_message="@memory:save from above", **path)
    wanted = ["from above"] if policy == "ignore" else ["from above", "from below"]
    wait_until(lambda: sorted(e["body"] for e in claude.events("directive")) == wanted)


def test_an_agent_gets_the_onboarding_once_and_again_after_a_clear(wrap: Wrap) -> None:
    """It is context from its hooks; nothing is typed."""
    claude = wrap()
    (started,) = claude.fire("SessionStart", source="startup")
    assert f"You are {claude.name} in the team default" in context(started)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert not submitted["stdout"]
    (cleared,) = claude.fire("SessionStart", source="clear")
    assert f"You are {claude.name}" in context(cleared)
    assert claude.events("injection") == []


def test_settings_can_turn_onboarding_off(relay: Relay) -> None:
    settings(relay, 'teach = "never"\n')
    claude = Claude(relay).wrap()
    (started,) = claude.fire("SessionStart", source="startup")
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert not started["stdout"] and not submitted["stdout"]


def test_explain_says_whether_hooks_report(wrap: Wrap) -> None:
    claude = wrap()
    assert "silent so far" in claude.relay("explain", claude.name).stdout
    claude.fire("SessionStart", source="startup")
    assert "they report its state and its words" in claude.relay("explain", claude.name).stdout


@pytest.mark.parametrize("continues", [True, False])
def test_only_the_agents_next_event_proves_a_continuation(wrap: Wrap, continues: bool) -> None:
    """That the hook printed it does not prove that the agent read it."""
    claude = start_turn(wrap(CONTINUES))
    claude.fire("Stop", last_assistant_message="not yet")
    assert claude.events("injection") == []
    if continues:
        claude.fire("Stop", last_assistant_message="enough")
    else:
        claude.exit()
    results = wait_until(lambda: claude.events("injection"))
    assert {e["result"] for e in results} == {"injected" if continues else "uncertain"}


def test_a_message_is_not_delivered_before_the_turn_has_started(wrap: Wrap) -> None:
    """A message in the reply to SessionStart would be unread until the user's prompt.

    Claude Code also forgets a prompt that the user takes back, with the context added to it.
    """
    claude = wrap()
    claude.relay("send", claude.name, "are you there?")
    wait_until(
        lambda: [message["state"] for message in messages(claude.relay, "--to", claude.name)] == ["stored"]
    )
    (started,) = claude.fire("SessionStart", source="startup")
    assert "are you there?" not in context(started)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert "are you there?" not in context(submitted)
    (called,) = claude.fire("PreToolUse", tool_name="Read", tool_input={})
    assert "are you there?" in context(called)


def test_initial_context_comes_with_the_session_start_or_the_first_prompt(wrap: Wrap) -> None:
    """R51: no turn is started for it. At the start, the session may still be loading its handlers."""
    config = 'from relay import on\non("session_start")(lambda ctx: "You are on call.")\n'
    claude = wrap(config)
    (started,) = claude.fire("SessionStart", source="startup")
    if "You are on call." not in context(started):
        wait_until(lambda: "does not justify a turn" in claude.relay("explain", claude.name).stdout)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert (context(started) + context(submitted)).count("You are on call.") == 1


KNOWN = """
[[states]]
name = "spinner"
state = "working"
region = "bottom 1"
all = ["^busy"]
"""


def test_directives_in_a_redrawn_old_conversation_are_ignored(relay: Relay) -> None:
    """Agents redraw it when resumed. A turn starts with a submission, or when the agent starts to work."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "known.toml").write_text('name = "known"\n' + KNOWN)
    settings(relay, 'teach = "never"\n')  # nothing is submitted
    alice = FakeAgent(relay, "Alice").wrap(options=("--agent", "known"))
    alice.say("@memory:save from long ago")
    alice.say("busy")
    wait_until(lambda: "spinner" in relay("explain", "Alice").stdout)
    alice.say("@memory:save from now")
    wait_until(lambda: alice.events("directive"))
    assert [e["body"] for e in alice.events("directive")] == ["from now"], alice.log()


def test_directives_drawn_just_before_the_first_turn_are_ignored(relay: Relay) -> None:
    """The old text was drawn just before, and would count once it had been visible for long enough."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "known.toml").write_text('name = "known"\nreader = "screen"\n' + KNOWN)
    drawn = "\x1b[2J\x1b[H@memory:save from long ago\n"
    alice = FakeAgent(relay, "Alice").wrap("--ready", drawn, options=("--agent", "known"))
    alice.receives("relay send NAME TEXT")  # the end of the onboarding, which is the first submission
    alice.say("@memory:save from now")
    wait_until(lambda: alice.events("directive"))
    assert [e["body"] for e in alice.events("directive")] == ["from now"]


def test_the_screen_counts_again_when_hooks_fall_silent(relay: Relay) -> None:
    """After a whole turn without hooks the screen counts, and after another hook the hooks."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    ready = '[[states]]\nname = "done"\nstate = "failed"\nregion = "bottom 1"\nall = ["^over"]\n'
    (patterns / "claude.toml").write_text('name = "claude"\n' + KNOWN + ready)
    settings(relay, 'teach = "never"\n')
    claude = start_turn(Claude(relay).wrap())
    claude.print("over\n")
    wait_until(
        lambda: claude.events("state")[-1]["state"] == "failed",
        message=lambda: str(claude.events("state")) + relay("explain", claude.name).stdout,
    )
    command = [sys.executable, "-m", "relay", "attach", claude.name]
    user = Emulator(command, {**relay.environment, "PYTHONSAFEPATH": "1"}, cwd=relay.home)
    try:
        user.wait_for("over")
        user.type("hello\r")
        user.wait_for("hello")
        claude.print("busy\n")
        wait_until(lambda: "spinner" in relay("explain", claude.name).stdout)
        claude.print("over\n")
        wait_until(lambda: [e for e in claude.events("bridge") if e.get("alive") is False])
    finally:
        user.close()
    assert "silent in its last turn" in relay("explain", claude.name).stdout
    claude.print("@memory:save drawn\n")
    wait_until(lambda: [e["body"] for e in claude.events("directive")] == ["drawn"])
    claude.fire("UserPromptSubmit", prompt="again")
    assert "they report its state and its words" in relay("explain", claude.name).stdout
