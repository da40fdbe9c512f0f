"""What a session does with its agent's hooks: events, continuations, exact words, the lesson."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from agents.hooked import Claude, Json
from session.fake_agent import FakeAgent, messages, project, settings
from session.transcript import Transcript
from support import Relay, wait_until
from terminal.emulator import Emulator

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


def recorded(claude: Claude) -> str:
    """Return what the handler of RECORD saw."""
    found = wait_until(lambda: claude.events("handler_printed"), message=lambda: str(claude.events("notice")))
    return str(found[-1]["text"])


@pytest.fixture
def transcript(relay: Relay) -> Transcript:
    return Transcript(relay.home / "transcript.jsonl")


def begun(claude: Claude, **fields: Any) -> Claude:
    claude.fire("SessionStart", source="startup", **fields)
    claude.fire("UserPromptSubmit", prompt="do it", **fields)
    return claude


def test_agent_end_has_the_last_message_of_the_turn(relay: Relay) -> None:
    """R1, R2"""
    claude = begun(Claude(relay).wrap(cwd=project(relay, RECORD.format(event="agent_end"))))
    (stopped,) = claude.fire("Stop", last_assistant_message="All done.")
    assert not stopped["stdout"]
    said = recorded(claude)
    assert "success=True" in said and "last_assistant_message='All done.'" in said
    assert "{'role': 'user', 'content': 'do it'}" in said
    assert "error=None" in said and "duration_ms=None" not in said


def test_without_a_last_text_the_last_message_is_none(relay: Relay) -> None:
    """R3"""
    claude = begun(Claude(relay).wrap(cwd=project(relay, RECORD.format(event="agent_end"))))
    claude.fire("Stop", last_assistant_message="")
    assert "last_assistant_message=None" in recorded(claude)


def test_a_model_that_fails_ends_the_turn_with_its_error(relay: Relay) -> None:
    """R1"""
    claude = begun(Claude(relay).wrap(cwd=project(relay, RECORD.format(event="agent_end"))))
    claude.fire("StopFailure", error="overloaded_error", last_assistant_message="API Error: 529")
    said = recorded(claude)
    assert "success=False" in said and "error='overloaded_error'" in said
    wait_until(lambda: claude.events("state")[-1]["state"] == "failed")


def test_a_tool_call_is_told_before_and_after(relay: Relay) -> None:
    """R54"""
    config = """
from relay import on

@on("tool_call")
def record(event):
    print(type(event).__name__, event.tool_name, event.tool_input["command"])
"""
    claude = begun(Claude(relay).wrap(cwd=project(relay, config)))
    claude.fire("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})
    claude.fire("PostToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_response="x")
    wait_until(lambda: len(claude.events("handler_printed")) == 2)
    printed = [str(e["text"]).strip() for e in claude.events("handler_printed")]
    assert printed == ["ToolPre Bash ls", "ToolPost Bash ls"]


def test_a_tool_that_failed_is_told_with_its_error(relay: Relay) -> None:
    """R37"""
    claude = begun(Claude(relay).wrap(cwd=project(relay, RECORD.format(event="tool_post"))))
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


def test_an_agent_goes_on_until_the_cap_is_reached(relay: Relay) -> None:
    """R4, R5, R6, R7, R8, R10: all handlers' messages count, in order; None adds nothing."""
    claude = begun(Claude(relay).wrap(cwd=project(relay, CONTINUES)))
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


def test_the_cap_is_the_users(relay: Relay) -> None:
    """R10, R28"""
    settings(relay, "continuations = 1\n")
    claude = begun(Claude(relay).wrap(cwd=project(relay, CONTINUES)))
    stops = [claude.fire("Stop", last_assistant_message="not yet")[0] for _ in range(2)]
    assert [bool(stop["stdout"]) for stop in stops] == [True, False]
    said = relay("explain", claude.name).stdout
    assert "relay has made it continue 1 time of at most 1" in said


def test_an_explicit_continue_needs_no_text(relay: Relay) -> None:
    """R8"""
    config = 'from relay import on\non("agent_end")(lambda ctx: {"continue": True})\n'
    claude = begun(Claude(relay).wrap(cwd=project(relay, config)))
    (stopped,) = claude.fire("Stop", last_assistant_message="done?")
    assert "Go on." in answer(stopped)["hookSpecificOutput"]["additionalContext"]


def test_a_prompt_can_be_denied(relay: Relay) -> None:
    config = 'from relay import on\non("prompt_submit")(lambda prompt: {"deny": "not now"})\n'
    claude = Claude(relay).wrap(cwd=project(relay, config))
    claude.fire("SessionStart", source="startup")
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert (answer(submitted)["decision"], answer(submitted)["reason"]) == (
        "block",
        "[Blocked by hook] not now",
    )


def test_a_call_that_the_user_allowed_needs_no_dialog(relay: Relay) -> None:
    """By default relay asks for every call; plans and questions always need the user. Each use is logged."""
    settings(relay, 'allow = ["Bash(git status)", "ExitPlanMode"]\n')
    claude = begun(Claude(relay).wrap())
    (asked,) = claude.fire("PermissionRequest", tool_name="Bash", tool_input={"command": "git status"})
    assert answer(asked)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    (noted,) = claude.events("allowed")
    assert (noted["tool"], noted["rule"]) == ("Bash", "Bash(git status)")
    wait_until(lambda: claude.events("state")[-1]["state"] == "working")  # once the answer is on its way
    for tool, tool_input in (("Bash", {"command": "git push"}), ("ExitPlanMode", {"plan": "x"})):
        (asked,) = claude.fire("PermissionRequest", tool_name=tool, tool_input=tool_input)
        assert not asked["stdout"]


def test_what_a_tool_handler_injects_is_there_before_the_next_step(relay: Relay) -> None:
    """R73"""
    config = 'from relay import on\non("tool_post")(lambda tool_name: f"{tool_name}: line 3 is bad")\n'
    claude = begun(Claude(relay).wrap(cwd=project(relay, config)))
    (posted,) = claude.fire("PostToolUse", tool_name="Write", tool_input={}, tool_response="ok")
    assert "Write: line 3 is bad" in context(posted)
    injection = wait_until(lambda: claude.events("injection"))[-1]
    assert (injection["route"], injection["role"], injection["result"]) == ("native", "system", "injected")


def test_its_transcript_is_heard_and_its_screen_is_not(relay: Relay, transcript: Transcript) -> None:
    """Each directive counts once, also in a message before a tool call; in a fence it does not."""
    path = {"transcript_path": str(transcript.path)}
    claude = begun(Claude(relay).wrap(), **path)
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
def test_a_subagents_directives_count_where_the_user_wants_that(
    relay: Relay, transcript: Transcript, policy: str
) -> None:
    settings(relay, f'subagents = "{policy}"\n')
    path = {"transcript_path": str(transcript.path)}
    claude = begun(Claude(relay).wrap(), **path)
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


def test_an_agent_is_taught_once_and_again_when_it_has_forgotten(relay: Relay) -> None:
    """Nothing is typed: the lesson is context from its hooks."""
    claude = Claude(relay).wrap()
    (started,) = claude.fire("SessionStart", source="startup")
    assert "You are Ann in the team default" in context(started)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert not submitted["stdout"]
    (cleared,) = claude.fire("SessionStart", source="clear")
    assert "You are Ann" in context(cleared)
    assert claude.events("injection") == []


def test_an_agent_that_must_not_be_taught_is_not(relay: Relay) -> None:
    settings(relay, 'teach = "never"\n')
    claude = Claude(relay).wrap()
    (started,) = claude.fire("SessionStart", source="startup")
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert not started["stdout"] and not submitted["stdout"]


def test_explain_says_whether_its_hooks_speak(relay: Relay) -> None:
    claude = Claude(relay).wrap()
    assert "silent so far" in relay("explain", claude.name).stdout
    claude.fire("SessionStart", source="startup")
    assert "they report its state and its words" in relay("explain", claude.name).stdout


@pytest.mark.parametrize("follows", [True, False])
def test_only_what_the_agent_does_next_proves_a_continuation(relay: Relay, follows: bool) -> None:
    """Printed is not read."""
    claude = begun(Claude(relay).wrap(cwd=project(relay, CONTINUES)))
    claude.fire("Stop", last_assistant_message="not yet")
    assert claude.events("injection") == []
    if follows:
        claude.fire("Stop", last_assistant_message="enough")
    else:
        claude.exit()
    results = wait_until(lambda: claude.events("injection"))
    assert {e["result"] for e in results} == {"injected" if follows else "uncertain"}


def test_a_message_waits_for_a_turn_and_not_for_the_start(relay: Relay) -> None:
    """A message carried at the start would be unread until the user speaks.

    Claude also forgets a prompt that the user takes back, with everything it carried.
    """
    claude = Claude(relay).wrap()
    relay("send", claude.name, "are you there?")
    wait_until(lambda: [message["state"] for message in messages(relay)] == ["stored"])
    (started,) = claude.fire("SessionStart", source="startup")
    assert "are you there?" not in context(started)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert "are you there?" not in context(submitted)
    (called,) = claude.fire("PreToolUse", tool_name="Read", tool_input={})
    assert "are you there?" in context(called)


def test_initial_context_comes_with_the_start_or_with_the_first_prompt(relay: Relay) -> None:
    """R51: an agent with hooks is not woken for it. The session may still be loading its handlers."""
    config = 'from relay import on\non("session_start")(lambda ctx: "You are on call.")\n'
    claude = Claude(relay).wrap(cwd=project(relay, config))
    (started,) = claude.fire("SessionStart", source="startup")
    if "You are on call." not in context(started):
        wait_until(lambda: "does not justify a turn" in relay("explain", claude.name).stdout)
    (submitted,) = claude.fire("UserPromptSubmit", prompt="do it")
    assert (context(started) + context(submitted)).count("You are on call.") == 1


KNOWN = """
[[states]]
name = "spinner"
state = "working"
region = "bottom 1"
all = ["^busy"]
"""


def test_an_old_conversation_that_is_drawn_again_is_not_heard(relay: Relay) -> None:
    """Agents redraw it when resumed; a turn starts with a submission, or with work on an argument."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "known.toml").write_text('name = "known"\n' + KNOWN)
    settings(relay, 'teach = "never"\n')  # nothing is submitted
    alice = FakeAgent(relay, "Alice").wrap(options=("--agent", "known"))
    alice.say("@memory:save said long ago")
    alice.say("busy")
    wait_until(lambda: "spinner" in relay("explain", "Alice").stdout)
    alice.say("@memory:save said now")
    wait_until(lambda: alice.events("directive"))
    assert [e["body"] for e in alice.events("directive")] == ["said now"], alice.log()


def test_an_old_conversation_is_not_heard_when_the_first_turn_begins(relay: Relay) -> None:
    """The old text was drawn a moment ago, and would count once it has stood for long enough."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "known.toml").write_text('name = "known"\nreader = "screen"\n' + KNOWN)
    drawn = "\x1b[2J\x1b[H@memory:save said long ago\n"
    alice = FakeAgent(relay, "Alice").wrap("--ready", drawn, options=("--agent", "known"))
    alice.receives("relay send NAME TEXT")  # the end of the lesson, which is the first submission
    alice.say("@memory:save said now")
    wait_until(lambda: alice.events("directive"))
    assert [e["body"] for e in alice.events("directive")] == ["said now"]


def test_hooks_that_fall_silent_give_the_screen_its_say_again(relay: Relay) -> None:
    """After a whole turn without hooks, the screen counts; a later hook counts again."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    ready = '[[states]]\nname = "done"\nstate = "failed"\nregion = "bottom 1"\nall = ["^over"]\n'
    (patterns / "claude.toml").write_text('name = "claude"\n' + KNOWN + ready)
    settings(relay, 'teach = "never"\n')
    claude = begun(Claude(relay).wrap())
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
