"""What a session does for idle agents, prompts and errors: nudge, gate, wait, hold, restart, or fail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.hooked import Claude
from relay.features.holds import SAME_CALLS
from session.fake_agent import FakeAgent, messages, project, ps, settings
from session.test_session_replaced import entry
from session.test_session_supervised import phase, record, wait_for_restart
from session.test_session_user import Terminals
from support import Relay, session_patch, wait_until

pytestmark = pytest.mark.own_team

INCIDENTS = """
import time
from relay.directives.events import AgentSaid
from relay.eventbus import handles
from relay.session.features import FEATURES
from relay.supervision.events import Incident

class Fails:
    def __init__(self, bus):
        self.bus = bus

    @handles(AgentSaid)
    def said(self, event):
        for line in event.lines:
            if line.startswith("error "):
                _, cls, *after = line.split()
                reset = time.time() + float(after[0]) if after else None
                self.bus.publish(Incident("error", cls, reset, line))

FEATURES["fails"] = lambda core: Fails(core.bus)
"""
"""Turns the line `error CLASS [SECONDS]` into an incident, as profiles do for real agents."""


@pytest.fixture
def terminals(relay: Relay) -> Iterator[Terminals]:
    opened = Terminals(relay)
    yield opened
    for user in opened.opened:
        user.close()


def supervise(relay: Relay, *arguments: str, name: str = "Alice", **policy: Any) -> FakeAgent:
    """Wrap a fake agent with a policy and a short idle_grace."""
    keys = {"idle_grace": 0.5, **policy}
    return FakeAgent(relay, name).wrap(
        *arguments, options=("--supervision", json.dumps(keys)), env=session_patch(INCIDENTS)
    )


def on_idle(action: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "cooldown": 0.0, **more}


def explained(relay: Relay, name: str = "Alice") -> dict[str, Any]:
    return dict(json.loads(relay("explain", "--json", name).stdout))


def escalations(agent: FakeAgent) -> list[str]:
    return [e["text"] for e in agent.events("escalated") if e.get("kind") == "supervision"]


def escalated(agent: FakeAgent, words: str) -> str:
    """Wait for an escalation with `words`; return its text."""
    found = wait_until(lambda: [each for each in escalations(agent) if words in each], message=agent.log)
    return found[0]


# Idle.


def test_an_idle_agent_is_nudged_and_then_escalated(relay: Relay) -> None:
    bob = FakeAgent(relay, "Bob").wrap()
    settings(relay, 'escalate_to = "Bob"\n')
    alice = supervise(relay, on_idle=on_idle("nudge", attempts=2, text="Go on, please."))
    text = escalated(alice, "has been idle")
    assert alice.texts() == [("nudge", "Go on, please.")] * 2
    assert "after 2 tries" in text and "relay attach Alice" in text
    bob.receives("Alice has been idle")
    before = len(alice.events("action"))
    idle = alice.events("state")
    assert before == 3 and idle
    assert len(escalations(alice)) == 1


def test_an_escalation_lasts_until_the_user_responds(relay: Relay, terminals: Terminals) -> None:
    """`relay inbox` and `relay next` name the agent, even after a reload."""

    def listed() -> list[str]:
        rows = json.loads(relay("inbox", "--json").stdout)
        return [each["text"] for each in rows if each["kind"] == "escalation"]

    policy = json.dumps({"on_idle": on_idle("nudge"), "idle_grace": 0.5})
    alice, user = terminals("Alice", options=("--supervision", policy))
    (text,) = wait_until(listed, message=alice.log)
    assert text.startswith("Alice has been idle for ")
    assert "ready (has been idle for " in relay("ps").stdout
    assert "It needs you: it has been idle for " in relay("explain", "Alice").stdout
    before = entry(relay)["session_pid"]
    wait_until(lambda: relay("next", "--print", check=False).stdout == "Alice\n")
    relay("reload", "Alice")
    wait_until(lambda: entry(relay)["session_pid"] != before and entry(relay)["bus"] == "connected")
    assert listed() == [text]
    user.type("x")
    wait_until(lambda: not listed(), message=alice.log)
    wait_until(lambda: relay("next", "--print", check=False).stderr == "No agent needs you.\n")


def test_a_failed_agent_stays_failed_and_relay_next_names_it(relay: Relay) -> None:
    supervise(relay, restart="always", on_idle=on_idle("fail"))
    assert phase(relay, "failed")["reason"] == "was idle"
    wait_until(lambda: ps(relay) == [])
    said = relay("next", "--print", check=False).stderr.splitlines()
    assert said == [
        *("Alice has failed: was idle. `relay logs Alice`", "No running agent needs you."),
        "1 unread item in your inbox: `relay inbox`",
    ]


def test_a_message_resets_the_count_of_nudges(relay: Relay) -> None:
    alice = supervise(relay, on_idle=on_idle("nudge", text="Go on.", then="none"))
    alice.receives("Go on.")
    relay("send", "--wait", "30", "Alice", "news")
    wait_until(lambda: len(alice.texts()) == 3, message=alice.log)
    assert [text for _, text in alice.texts()] == ["Go on.", "news", "Go on."]


def test_an_idle_agent_without_a_task_is_left_alone(relay: Relay) -> None:
    alice = supervise(relay, restart="on-failure")
    relay("send", "--wait", "30", "Alice", "hello")
    assert [e["kind"] for e in alice.events("injection")] == ["message"]
    assert not alice.events("action")


def test_an_idle_agent_with_a_task_is_escalated_once(relay: Relay) -> None:
    alice = supervise(relay, prompt="Fix it.")
    escalated(alice, "Alice has been idle")
    alice.receives("Fix it.")


def test_the_output_of_a_gate_is_the_next_prompt_until_it_passes_and_ends_the_agent(relay: Relay) -> None:
    """The gate fails twice, then passes. Of a long output the end counts, which has the reason."""
    run = 'pwd; echo "$RELAY_NAME" >&2; echo x >> tried; case $(wc -l < tried) in 3) exit 0;; 2) '
    run += "seq -f %0100.0f 20000; printf 'the rea%s' son;; esac; exit 1"
    alice = supervise(relay, restart="always", on_idle=on_idle("gate", run=run, attempts=5))
    ended = phase(relay, "done")
    assert (ended["reason"], ended["wanted"]) == ("passed its gate", "up")
    first, second = re.findall(r"\[relay \w+ 1/\d+ .*nudge gate.*", alice.received)
    assert "must succeed before your task is done" in first and "must succeed" in second
    assert str(relay.home) in alice.received and "Alice" in alice.received
    assert "00020000" in alice.received and "the reason" in alice.received
    assert "(the end of it)" in alice.received
    wait_until(lambda: ps(relay) == [])


def test_an_agent_is_restarted_once_for_being_idle(relay: Relay) -> None:
    """The restarted agent's session knows; otherwise it would be restarted for ever."""
    alice = supervise(relay, restart="on-failure", on_idle=on_idle("restart", then="none"))
    wait_for_restart(relay, {"name": "Alice", "restarts": 0})
    relay("send", "--wait", "30", "Alice", "hello")  # real progress
    wait_for_restart(relay, {"name": "Alice", "restarts": 1})
    assert len(alice.events("action")) == 2


def test_a_command_runs_while_the_agent_stays_ready(relay: Relay) -> None:
    alice = supervise(relay, on_idle=on_idle("run", run="echo done > ran; exit 3", then="none"))
    alice.notice("exited with 3")
    assert (relay.home / "ran").read_text() == "done\n"
    assert entry(relay)["state"] == "ready"


def test_a_half_typed_line_is_not_idle(relay: Relay, terminals: Terminals) -> None:
    """The user's Enter ends the line, and the hold."""
    keys = {"idle_grace": 0.5, "on_idle": on_idle("nudge", attempts=9), "restart": "always"}
    keys["max_unattended_turns"] = 1
    alice, user = terminals("Alice", options=("--supervision", json.dumps(keys)))
    wait_until(lambda: entry(relay)["state"] == "held", message=alice.log)
    user.type("half a li")
    wait_until(lambda: entry(relay)["state"] == "held")
    user.type("ne\r")
    alice.receives("half a line")
    wait_until(lambda: len(alice.texts()) == 2, message=alice.log)  # one more, and it is held again
    wait_until(lambda: entry(relay)["state"] == "held", message=alice.log)
    user.type("half")
    relay("release", "--agent", "Alice")
    wait_until(lambda: explained(relay)["obstacle"] is None and entry(relay)["state"] != "held")
    wait_until(lambda: len(alice.events("action")) >= 2)
    assert len(alice.texts()) == 2
    relay("stop", "Alice")


# Prompts.


def test_a_prompt_can_fail_the_agent(relay: Relay) -> None:
    alice = supervise(relay, on_prompt={"action": "fail"})
    alice.say("Install? [Y/n] ", end="")
    assert phase(relay, "failed")["reason"] == "asked for a decision"


# Errors.


@pytest.mark.own_home
def test_an_agent_waits_until_its_limit_is_over_whatever_becomes_of_its_session(relay: Relay) -> None:
    alice = supervise(relay, restart="on-failure", account="work")
    entry(relay)
    alice.say("error rate_limited 3600")
    row = wait_until(lambda: (row := entry(relay))["state"] == "waiting" and row, message=alice.log)
    assert row["next_try"] > row["since"] + 3600
    assert row["agent_pid"]
    wait_until(lambda: "usage limit" in entry(relay)["account_hold"])
    text = relay("explain", "Alice").stdout
    assert "stopped on an error (usage limit); going on in" in text and "account work is held until" in text
    assert record(relay)["phase"] == "waiting"
    relay("reload", "Alice")
    again = wait_until(
        lambda: (new := entry(relay))["session_pid"] != row["session_pid"] and new["next_try"] and new
    )
    assert (again["state"], again["next_try"]) == ("waiting", row["next_try"])
    assert relay("inbox", "--json").stdout.strip() == "[]", "a limit that passes does not need the user"
    relay("send", "--wait", "30", "Alice", "hello")  # whatever starts a turn ends the wait
    wait_until(lambda: entry(relay)["state"] == "ready")
    assert record(relay)["phase"] == "up"


def test_an_agent_is_nudged_after_an_error(relay: Relay) -> None:
    own = {"action": "nudge", "match": "network", "text": "Again.", "cooldown": 0.0, "attempts": 2}
    alice = supervise(relay, on_error=[own])
    alice.say("error network")
    alice.receives("Again.")
    alice.say("error network")
    alice.say("error network")
    assert "after 2 tries" in escalated(alice, "network failure")


@pytest.mark.own_home
def test_a_missing_login_holds_the_account(relay: Relay) -> None:
    """The account is held once, for all its agents; the first successful turn releases it."""
    alice = supervise(relay, restart="on-failure", account="work")
    bob = supervise(relay, name="Bob", restart="on-failure", account="work", on_idle=on_idle("nudge"))
    bob.receives("You have been idle")
    alice.say("error unauthorized")
    bob.say("error unauthorized")
    for name in ("Alice", "Bob"):
        wait_until(lambda: entry(relay, name)["state"] == "held", message=alice.log)  # noqa: B023
        assert "not logged in" in entry(relay, name)["account_hold"]
    (text,) = wait_until(lambda: escalations(alice) + escalations(bob))
    assert "not logged in" in text and "relay release --account work" in text
    carol = supervise(relay, name="Carol", account="work", prompt="Fix it.")
    wait_until(lambda: "account work is held" in (explained(relay, "Carol")["obstacle"] or ""))
    assert carol.received == ""
    relay("send", "--wait", "30", "Alice", "I have logged in")
    carol.receives("Fix it.")
    bob.receives("ended with an error (not logged in)")
    wait_until(lambda: entry(relay, "Bob")["state"] == "ready")
    assert not entry(relay, "Alice")["account_hold"]


@pytest.mark.own_home
def test_the_user_releases_an_account(relay: Relay) -> None:
    assert relay("release", "--account", "work").stdout == "No account is held.\n"
    alice = supervise(relay, restart="on-failure", account="work")
    alice.say("error billing")
    wait_until(lambda: entry(relay)["state"] == "held")
    assert "Held: work." in relay("release", "--account", "home").stdout
    assert relay("release", "--account", "work").stdout == "The account work is no longer held.\n"
    alice.receives("ended with an error (out of credits)")


def test_a_crashed_agent_waits_for_its_account(relay: Relay) -> None:
    alice = supervise(relay, restart="on-failure", account="work", backoff=0.01)
    alice.say("error billing")
    before = wait_until(lambda: (row := entry(relay))["state"] == "held" and row)
    alice.exit(1)
    wait_until(lambda: "account work is held" in relay("explain", "Alice").stdout)
    wait_until(lambda: entry(relay)["exit_code"] == 1)
    relay("release", "--account", "work")
    wait_for_restart(relay, before)


# Holds and bounds.


@pytest.mark.own_home
def test_a_failure_reported_by_a_hook_triggers_its_action(relay: Relay) -> None:
    """Claude Code's hook reports it."""
    policy = {"restart": "on-failure", "account": "work"}
    ann = Claude(relay).wrap(options=("--supervision", json.dumps(policy)))
    ann.fire("SessionStart", source="startup")
    ann.fire("UserPromptSubmit", prompt="do it")
    ann.fire("StopFailure", error="authentication_failed", last_assistant_message="Invalid API key")
    row = wait_until(lambda: (row := entry(relay, "Ann"))["state"] == "held" and row)
    assert "not logged in" in row["account_hold"]


def test_an_agent_is_held_after_the_maximum_of_unattended_turns(relay: Relay) -> None:
    alice = supervise(
        relay, restart="on-failure", max_unattended_turns=2, on_idle=on_idle("nudge", attempts=9, text="On.")
    )
    row = wait_until(lambda: (row := entry(relay))["state"] == "held" and row, message=alice.log)
    assert row["reason"] == "started 2 turns without your input"
    assert "relay release --agent Alice" in escalated(
        alice, "started 2 turns without your input, and is held"
    )
    assert len(alice.texts()) == 2
    relay("send", "Alice", "wait for it")
    wait_until(lambda: "it is held" in (explained(relay)["obstacle"] or ""))
    assert "held" in relay("explain", "Alice").stdout
    assert "wait for it" not in alice.received
    assert relay("release", "--agent", "Alice").stdout == "Alice continues.\n"
    alice.receives("wait for it")
    wait_until(lambda: [m["state"] for m in messages(relay)] == ["injected"])


def test_a_hold_outlives_the_session_and_the_agent(relay: Relay) -> None:
    alice = supervise(
        relay,
        restart="on-failure",
        backoff=0.01,
        max_unattended_turns=1,
        on_idle=on_idle("nudge", attempts=9),
    )
    row = wait_until(lambda: (row := entry(relay))["state"] == "held" and row)
    relay("reload", "Alice")
    row = wait_until(
        lambda: (new := entry(relay))["session_pid"] != row["session_pid"] and new["state"] == "held" and new
    )
    alice.exit(1)
    after = wait_for_restart(relay, row)
    wait_until(lambda: entry(relay)["state"] == "held")
    assert len(escalations(alice)) == 1
    relay("stop", "Alice")  # its closing prompt still works
    assert after["restarts"] == 1 and record(relay)["phase"] == "off"
    assert not list((relay.home / "state" / "supervision").rglob("alice*.json"))


def test_an_agent_in_a_loop_is_held(relay: Relay) -> None:
    ann = Claude(relay).wrap(options=("--supervision", json.dumps({"restart": "on-failure"})))
    ann.fire("SessionStart", source="startup")
    ann.fire("UserPromptSubmit", prompt="do it")
    for _ in range(SAME_CALLS):
        assert entry(relay, "Ann")["state"] != "held"
        ann.fire("PreToolUse", tool_name="Bash", tool_input={"command": "make"})
    row = wait_until(lambda: (row := entry(relay, "Ann"))["state"] == "held" and row)
    assert row["reason"] == "made the same call of Bash 8 times in a row"
    relay("send", "Ann", "a message")
    (called,) = ann.fire("Stop", last_assistant_message="Done.")
    assert "a message" not in called["stdout"]  # nothing is delivered with its hooks


def test_idle_handlers_do_not_inject_for_ever(relay: Relay) -> None:
    """The handler is the example in docs/HOOKS.md; the agent answers each time and is idle again."""
    settings(relay, "idle_seconds = 1.0\ncontinuations = 2\n")
    page = (Path(__file__).parents[2] / "docs" / "HOOKS.md").read_text()
    (example,) = [
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if '@on("idle")' in each
    ]
    alice = FakeAgent(relay, "Alice").wrap(
        "--reply", "Nothing has happened", "It goes well.\n", cwd=project(relay, example)
    )
    alice.notice("idle handlers have injected something 2 times in a row")
    assert explained(relay)["idle_dropped"] == 1
    assert len(alice.texts()) == 2
    assert "idle handlers dropped" in relay("explain", "Alice").stdout
    relay("send", "--wait", "30", "Alice", "news")
    wait_until(lambda: len(alice.texts()) == 5, message=alice.log)  # the message, and two more
    wait_until(lambda: explained(relay).get("idle_dropped"), message=alice.log)
    assert len(alice.texts()) == 5


def test_an_agent_is_held_after_its_maximum_runtime(relay: Relay) -> None:
    alice = supervise(relay, max_runtime=1.0)
    assert "ran for 1 s without you" in escalated(alice, "and is held")
    relay("restart", "Alice")  # by the user
    wait_for_restart(relay, {"name": "Alice", "restarts": 0})


def test_an_agent_without_supervision_is_left_alone(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap(env=session_patch(INCIDENTS))
    alice.say("error unauthorized")
    alice.say("error rate_limited 3600")
    relay("send", "--wait", "30", "Alice", "hello")
    assert entry(relay)["state"] == "ready"
    assert not alice.events("action") and not alice.events("escalated")
    assert relay("release", "--agent", "Alice").stdout == "Alice is not held.\n"
