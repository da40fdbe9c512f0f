"""Real agents of a fleet are supervised: limits, logins, crashes, nudges, gates, caps."""

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


def escalation(agent: Wrapped, words: str) -> str:
    """Wait until an escalation contains `words`; return its whole text."""
    return agent.rig.wait(
        lambda: next((text for text in escalations(agent) if words in text), ""),
        f"an escalation says {words!r}",
    )


def prompts(agent: Wrapped) -> list[str]:
    """Return the prompt of each turn, in order; a turn may have several requests."""
    user_texts = [request.turn.user for request in agent.model.requests]
    return [text for n, text in enumerate(user_texts) if n == 0 or user_texts[n - 1] != text]


def start_waiting_agent(fleet: Fleet, name: str) -> Wrapped:
    """Start another agent of a held account, and check that it does not get its task."""
    fleet.up(name)
    agent = fleet.attach(name)
    agent.rig.wait(lambda: agent.waiting() == 1 and agent.state == "ready", f"{name} waits")
    assert "account work is held" in agent.explain()["obstacle"]
    agent.rig.wait(lambda: fleet.state(name) == "ready (account held)", f"{name} is listed as ready and held")
    assert not agent.model.requests
    return agent


def test_agents_wait_for_the_end_of_a_usage_limit(rig: Rig, agent: Agent) -> None:
    """All agents of the account wait; after the reset, the one that reached the limit is nudged once."""
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
    rig.wait(lambda: not alice.info()["prompt"], "it does not ask anything")
    assert fleet.record("Alice")["phase"] == "waiting"
    state = fleet.state("Alice")
    assert state.startswith("waiting (account held, stopped on an error (usage limit), next try in ")
    bob = start_waiting_agent(fleet, "Bob")
    assert (fleet.next(), escalations(alice, bob)) == ("", [])
    assert "limit" not in str(alice.events("escalated")), (
        "its dialog must not count as a question to the user"
    )
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
    """One escalation; once the user has logged in and prompts one agent, all continue."""
    fleet = Fleet(
        rig,
        Member("Alice", agent, (Rule(TASK, *[Step(status=401)] * 12),), WORK),
        Member("Bob", agent, (), LATER),
    )
    alice = fleet.attach("Alice")
    alice.becomes("held")
    text = escalation(alice, "Alice stopped on an error (not logged in)")
    assert "`relay attach Alice`" in text and "`relay release --account work`" in text
    assert fleet.state("Alice") == "held (account held, stopped on an error (not logged in))"
    bob = start_waiting_agent(fleet, "Bob")
    assert fleet.next() == "Alice"
    alice.say("I have logged in")
    bob.receives("help with it")
    for each in (alice, bob):
        each.becomes("ready")
    rig.wait(lambda: fleet.state("Alice") == fleet.state("Bob") == "ready", "nothing is held")
    assert len(escalations(alice, bob)) == 1
    assert [len(prompts(alice)), len(prompts(bob))] == [2, 1]


def test_a_full_context_is_escalated_or_restarts_the_agent(rig: Rig, agent: Agent) -> None:
    """With an escalation; a restart policy restarts the agent once."""
    full = CLASSES[agent.name]["context_full"]
    on_error = [{"match": "context_full", "action": "restart", "cooldown": 0}]
    fleet = Fleet(
        rig,
        Member("Alice", agent, (Rule(TASK, full),), {"task": TASK}),
        Member("Bob", agent, (Rule(TASK, full),), {"task": TASK, "on_error": on_error}),
    )
    alice, bob = fleet.attach("Alice"), fleet.attach("Bob")
    text = escalation(alice, "Alice stopped on an error (context full)")
    assert "compact its context" in text and "`relay restart --fresh Alice`" in text
    escalation(bob, "Bob stopped on an error (context full)")
    for name in ("Alice", "Bob"):
        rig.wait(
            lambda name=name: fleet.state(name).startswith("ready (stopped on an error (context full)"),
            f"{name} is ready again",
        )
    assert fleet.next() in {"Alice", "Bob"}
    assert bob.info()["restarts"] == 1
    assert [len(prompts(alice)), len(prompts(bob))] == [1, 2], "each new conversation must get the task"
    assert len({each["conversation"] for each in bob.events("conversation")}) == 2
    assert not any("assistant" in {entry.role for entry in each.turn.entries} for each in bob.model.requests)


def has_stored(agent: Wrapped, session: str, text: str) -> bool:
    """Return whether the agent's conversation file, if it has one, contains `text`."""
    files = [path for path in agent.work.parent.rglob(f"*{session}*") if path.is_file()]
    return not files or any(text in path.read_text(errors="replace") for path in files)


def test_an_agent_that_crashed_in_a_turn_continues_it(rig: Rig, agent: Agent) -> None:
    """It has the old conversation, and does not get the task again."""
    hold = threading.Event()
    script = (
        Rule("You were interrupted", "I continue."),
        Rule("second thing", Step("Half of it", hold=hold, after=1)),
        Rule(TASK, "The bird is a heron."),
    )
    fleet = Fleet(rig, Member("Alice", agent, script, {"task": TASK, "backoff": 0.1}))
    alice = fleet.attach("Alice")
    alice.sees("a heron")
    alice.becomes("ready")
    alice.say("second thing")
    rig.wait(lambda: any("second thing" in each for each in prompts(alice)), "the model gets it")
    first = alice.info()
    rig.wait(lambda: has_stored(alice, first["session_id"], "second thing"), "its conversation file has it")
    os.kill(first["agent_pid"], signal.SIGKILL)
    alice.receives("You were interrupted")
    hold.set()
    alice.sees("I continue")
    alice.becomes("ready")
    again = alice.info()
    assert (again["restarts"], again["session_id"]) == (1, first["session_id"])
    conversation = [each.text for each in alice.model.requests[-1].turn.entries]
    for text in (TASK, "a heron", "second thing", "You were interrupted"):
        assert len([each for each in conversation if text in each]) == 1, conversation
    assert [event["phase"] for event in alice.events("phase")] == ["backoff", "starting"]
    assert fleet.record("Alice")["exit_code"] == 128 + signal.SIGKILL


def test_an_idle_agent_is_nudged(rig: Rig, agent: Agent) -> None:
    """As often as its policy says, and no faster; then there is an escalation."""
    nudge = {"action": "nudge", "text": "Go on, please.", "attempts": 2, "cooldown": 4}
    keys = {"task": TASK, "idle_grace": 0.5, "on_idle": nudge}
    fleet = Fleet(rig, Member("Alice", agent, (Rule(TASK, "Begun."), Rule("", "Still at it.")), keys))
    alice = fleet.attach("Alice")
    text = escalation(alice, "Alice has been idle")
    assert "after 2 tries" in text and "`relay attach Alice`" in text and "`relay stop Alice`" in text
    alice.becomes("ready")
    assert ["Go on, please." in text for text in prompts(alice)] == [False, True, True]
    first, second, last = [event["time"] for event in alice.events("action")]
    assert second - first > 3.5 and last > second
    assert alice.events("action")[-1]["action"] == "escalate" and len(escalations(alice)) == 1
    assert (fleet.state("Alice"), fleet.next()) == ("ready (has been idle for 0 s after 2 tries)", "Alice")


def test_a_gate_prompts_the_agent_until_it_passes(rig: Rig, agent: Agent) -> None:
    """The gate's output is the agent's next prompt."""
    run = 'echo x >> tried; echo "bug $(wc -l < tried) of 2"; [ "$(wc -l < tried)" = 3 ]'
    gate = {"action": "gate", "run": run, "attempts": 5, "cooldown": 0}
    keys = {"task": TASK, "idle_grace": 0.5, "on_idle": gate}
    fleet = Fleet(rig, Member("Alice", agent, (Rule(TASK, "Begun."), Rule("", "Fixed.")), keys))
    alice = fleet.attach("Alice")
    rig.wait(alice.terminal.ended, "it ends")
    rig.wait(lambda: fleet.record("Alice")["phase"] == "done", "that is recorded")
    texts = prompts(alice)
    assert [TASK in texts[0], "bug 1 of 2" in texts[1], "bug 2 of 2" in texts[2], len(texts)] == [
        True
    ] * 3 + [3]
    assert fleet.state("Alice") == "done (passed its gate)"
    assert escalations(alice) == [] and fleet.next() == ""
    assert "Alice" in fleet.up() and fleet.record("Alice")["phase"] != "off"


def test_a_token_cap_warns_and_then_holds(rig: Rig, agent: Agent) -> None:
    """At 80 % it warns, at 100 % it holds the agent; then no nudge or message starts a turn."""
    answer = INPUT + OUTPUT
    nudge = {"action": "nudge", "text": "Go on, please.", "attempts": 50, "cooldown": 0}
    keys = {"task": TASK, "idle_grace": 0.5, "max_tokens": 5 * answer - 1, "on_idle": nudge}
    fleet = Fleet(rig, Member("Alice", agent, (Rule("", "Fine."),), keys))
    alice = fleet.attach("Alice")
    most = f"of {5 * answer - 1} tokens"
    escalation(alice, f"Alice has used {4 * answer} {most}. At 100 % it is held")
    text = escalation(alice, f"{most}, and is held.")
    assert "`relay release --agent Alice`" in text
    alice.becomes("held")
    assert fleet.state("Alice").startswith("held (has used ")
    assert fleet.next() == "Alice"
    turns = len(prompts(alice))
    assert turns <= 7, "the cap must take effect within a second or so"
    assert alice.send("are you there?", 3) not in {"injected", "uncertain"}
    assert "it is held: it has used" in alice.explain()["obstacle"]
    assert len(prompts(alice)) == turns
    rig.relay("release", "--agent", "Alice")
    alice.receives("are you there?")
