"""Real agents of a fleet file, under supervision: limits, logins, crashes, nudges, gates, caps."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from real_agents.fleet import Fleet, Member
from real_agents.model import Rule, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped
from real_agents.test_failures import CLASSES, limited, subscriber
from real_agents.test_usage import INPUT, OUTPUT

pytestmark = pytest.mark.agents("claude", "codex")

HOUR = 3600
TASK = "begin the work"
WORK: dict[str, Any] = {"task": TASK, "account": "work"}
LATER: dict[str, Any] = {"task": "help with it", "account": "work", "autostart": False}


def escalations(*agents: Wrapped) -> list[str]:
    """Return the escalations of these agents, except those about dialogs."""
    entries = [entry for agent in agents for entry in agent.events("escalated")]
    return [entry["text"] for entry in entries if entry["kind"] == "supervision"]


def escalated(agent: Wrapped, words: str) -> str:
    """Wait until the user is told `words`; return the whole text."""
    return agent.rig.wait(
        lambda: next((text for text in escalations(agent) if words in text), ""),
        f"the user is told {words!r}",
    )


def prompts(agent: Wrapped) -> list[str]:
    """Return what started each turn, in order; an agent may ask its model several times in one."""
    asked = [request.turn.user for request in agent.model.requests]
    return [text for n, text in enumerate(asked) if n == 0 or asked[n - 1] != text]


def waits_for_its_account(fleet: Fleet, name: str) -> Wrapped:
    """Start another agent of a held account: it does not get its task."""
    fleet.up(name)
    agent = fleet.attach(name)
    agent.rig.wait(lambda: agent.waiting() == 1 and agent.state == "ready", f"{name} waits")
    assert "account work is held" in agent.explain()["obstacle"]
    assert fleet.state(name) == "ready (account held)"
    assert not agent.model.requests
    return agent


def test_a_usage_limit_is_waited_for(rig: Rig, agent: Agent) -> None:
    """All agents of the account wait; after the reset, the one that met the limit is nudged once."""
    reset = int(time.time()) + 3 * HOUR
    agent = subscriber(agent) if agent.name == "claude" else agent
    fleet = Fleet(
        rig,
        Member("Alice", agent, (Rule(TASK, limited(agent, reset)), Rule("usage limit", "I do.")), WORK),
        Member("Bob", agent, (), LATER),
    )
    alice = fleet.attach("Alice")
    alice.becomes("waiting")
    if agent.name == "claude":
        rig.wait(
            lambda: alice.events("dismissed") or alice.shows("Continuing automatically"),  # since 2.1.331
            "its dialog about the limit is dismissed",
        )
    rig.wait(lambda: not alice.info()["prompt"], "it asks nothing")
    assert fleet.record("Alice")["phase"] == "waiting"
    state = fleet.state("Alice")
    assert state.startswith("waiting (account held, stopped on an error (usage limit), next try in ")
    bob = waits_for_its_account(fleet, "Bob")
    assert (fleet.next(), escalations(alice, bob)) == ("", [])
    assert "limit" not in str(alice.events("escalated")), "its dialog is no question for the user"
    fleet.pass_time(3 * HOUR + 400)
    alice.receives("Your last turn ended with an error (usage limit)")
    bob.receives("help with it")
    for each in (alice, bob):
        each.becomes("ready")
    rig.wait(lambda: fleet.state("Alice") == fleet.state("Bob") == "ready", "nothing is held")
    assert [TASK in text for text in prompts(alice)] == [True, False]
    assert len(prompts(bob)) == 1
    assert fleet.record("Alice")["phase"] == "up"


def test_an_expired_login_holds_the_account(rig: Rig, agent: Agent) -> None:
    """The user is told once, logs in, and prompts one of them: all continue."""
    fleet = Fleet(
        rig,
        Member("Alice", agent, (Rule(TASK, *[Step(status=401)] * 12),), WORK),
        Member("Bob", agent, (), LATER),
    )
    alice = fleet.attach("Alice")
    alice.becomes("held")
    told = escalated(alice, "Alice stopped on an error (not logged in)")
    assert "`relay attach Alice`" in told and "`relay release --account work`" in told
    assert fleet.state("Alice") == "held (account held, stopped on an error (not logged in))"
    bob = waits_for_its_account(fleet, "Bob")
    assert fleet.next() == "Alice"
    alice.say("I have logged in")
    bob.receives("help with it")
    for each in (alice, bob):
        each.becomes("ready")
    rig.wait(lambda: fleet.state("Alice") == fleet.state("Bob") == "ready", "nothing is held")
    assert len(escalations(alice, bob)) == 1
    assert [len(prompts(alice)), len(prompts(bob))] == [2, 1]


def test_a_full_context(rig: Rig, agent: Agent) -> None:
    """The user is told; an agent with a restart policy then starts again, once."""
    full = CLASSES[agent.name]["context_full"]
    on_error = [{"match": "context_full", "action": "restart", "cooldown": 0}]
    fleet = Fleet(
        rig,
        Member("Alice", agent, (Rule(TASK, full),), {"task": TASK}),
        Member("Bob", agent, (Rule(TASK, full),), {"task": TASK, "on_error": on_error}),
    )
    alice, bob = fleet.attach("Alice"), fleet.attach("Bob")
    told = escalated(alice, "Alice stopped on an error (context full)")
    assert "compact its context" in told and "`relay restart Alice`" in told
    escalated(bob, "Bob stopped on an error (context full)")
    for name in ("Alice", "Bob"):
        rig.wait(
            lambda name=name: fleet.state(name).startswith("ready (stopped on an error (context full)"),
            f"{name} could be typed into again",
        )
    assert fleet.next() in {"Alice", "Bob"}
    assert bob.info()["restarts"] == 1
    assert [len(prompts(alice)), len(prompts(bob))] == [1, 2], "each new conversation is given the task"
    assert len({each["conversation"] for each in bob.events("conversation")}) == 2
    assert not any("assistant" in {said.role for said in each.turn.said} for each in bob.model.requests)


def keeps(agent: Wrapped, session: str, text: str) -> bool:
    """Return whether the agent has written `text` into its conversation file, if it keeps one."""
    files = [path for path in agent.work.parent.rglob(f"*{session}*") if path.is_file()]
    return not files or any(text in path.read_text(errors="replace") for path in files)


def test_a_crash_in_mid_turn(rig: Rig, agent: Agent) -> None:
    """The next agent has the old conversation and is told to continue; the task is not given again."""
    hold = threading.Event()
    script = (
        Rule("You were interrupted", "I go on."),
        Rule("second thing", Step("Half of it", hold=hold, after=1)),
        Rule(TASK, "The bird is a heron."),
    )
    fleet = Fleet(rig, Member("Alice", agent, script, {"task": TASK, "backoff": 0.1}))
    alice = fleet.attach("Alice")
    alice.sees("a heron")
    alice.becomes("ready")
    alice.say("second thing")
    rig.wait(lambda: any("second thing" in each for each in prompts(alice)), "it is asked")
    first = alice.info()
    rig.wait(lambda: keeps(alice, first["session_id"], "second thing"), "its conversation has that")
    os.kill(first["agent_pid"], signal.SIGKILL)
    alice.receives("You were interrupted")
    hold.set()
    alice.sees("I go on")
    alice.becomes("ready")
    again = alice.info()
    assert (again["restarts"], again["session_id"]) == (1, first["session_id"])
    said = [each.text for each in alice.model.requests[-1].turn.said]
    for text in (TASK, "a heron", "second thing", "You were interrupted"):
        assert len([each for each in said if text in each]) == 1, said
    assert [event["phase"] for event in alice.events("phase")] == ["backoff", "starting"]
    assert fleet.record("Alice")["exit_code"] == 128 + signal.SIGKILL


def test_an_idle_agent_is_nudged(rig: Rig, agent: Agent) -> None:
    """Nudges come as often as the policy says, no faster; then the user is told."""
    nudge = {"action": "nudge", "text": "Go on, please.", "attempts": 2, "cooldown": 4}
    keys = {"task": TASK, "idle_grace": 0.5, "on_idle": nudge}
    fleet = Fleet(rig, Member("Alice", agent, (Rule(TASK, "Begun."), Rule("", "Still at it.")), keys))
    alice = fleet.attach("Alice")
    told = escalated(alice, "Alice has been idle")
    assert "after 2 tries" in told and "`relay attach Alice`" in told and "`relay stop Alice`" in told
    alice.becomes("ready")
    assert ["Go on, please." in text for text in prompts(alice)] == [False, True, True]
    first, second, last = [event["time"] for event in alice.events("action")]
    assert second - first > 3.5 and last > second
    assert alice.events("action")[-1]["action"] == "escalate" and len(escalations(alice)) == 1
    assert (fleet.state("Alice"), fleet.next()) == ("ready (has been idle for 0 s after 2 tries)", "Alice")


def test_a_gate_fails_twice_and_passes(rig: Rig, agent: Agent) -> None:
    """The gate's output is the agent's next prompt; once the gate passes, the agent is done."""
    run = 'echo x >> tried; echo "bug $(wc -l < tried) of 2"; [ "$(wc -l < tried)" = 3 ]'
    gate = {"action": "gate", "run": run, "attempts": 5, "cooldown": 0}
    keys = {"task": TASK, "idle_grace": 0.5, "on_idle": gate}
    fleet = Fleet(rig, Member("Alice", agent, (Rule(TASK, "Begun."), Rule("", "Mended.")), keys))
    alice = fleet.attach("Alice")
    rig.wait(alice.terminal.ended, "it ends")
    rig.wait(lambda: fleet.record("Alice")["phase"] == "done", "that is noted")
    texts = prompts(alice)
    assert [TASK in texts[0], "bug 1 of 2" in texts[1], "bug 2 of 2" in texts[2], len(texts)] == [
        True
    ] * 3 + [3]
    assert fleet.state("Alice") == "done (passed its gate)"
    assert escalations(alice) == [] and fleet.next() == ""
    assert "Alice" in fleet.up() and fleet.record("Alice")["phase"] != "off"


def test_a_cap_warns_and_holds(rig: Rig, agent: Agent) -> None:
    """relay warns at 80 % of the cap and holds at 100 %; then no nudge or message starts a turn."""
    answer = INPUT + OUTPUT
    nudge = {"action": "nudge", "text": "Go on, please.", "attempts": 50, "cooldown": 0}
    keys = {"task": TASK, "idle_grace": 0.5, "max_tokens": 5 * answer - 1, "on_idle": nudge}
    fleet = Fleet(rig, Member("Alice", agent, (Rule("", "Fine."),), keys))
    alice = fleet.attach("Alice")
    most = f"of {5 * answer - 1} tokens"
    escalated(alice, f"Alice has used {4 * answer} {most}. At 100 % it is held")
    told = escalated(alice, f"{most}, and is held.")
    assert "`relay release --agent Alice`" in told
    alice.becomes("held")
    assert fleet.state("Alice").startswith("held (has used ")
    assert fleet.next() == "Alice"
    turns = len(prompts(alice))
    assert turns <= 7, "its record is read up to a second late"
    assert alice.send("are you there?", 3) not in {"injected", "uncertain"}
    assert "it is held: it has used" in alice.explain()["obstacle"]
    assert len(prompts(alice)) == turns
    rig.relay("release", "--agent", "Alice")
    alice.receives("are you there?")
