"""Each message reaches a real agent's model once and in order, or is visibly waiting."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from real_agents.model import Rule, Shell, Step
from real_agents.recipes import Agent
from real_agents.rig import Rig, Wrapped, has_door
from relay.home import Home
from relay.messaging.ledger import Ledger

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "opencode", "copilot")

IDLE = 1.0
"""Seconds without output after which an agent counts as idle."""

DEPTH = 4
"""Messages in a chain of replies until they are held."""


def working_agent(rig: Rig, agent: Agent, name: str = "Alice") -> Wrapped:
    """Return an agent that runs a command until `finish`."""
    work = rig.relay.home / name / "work"
    for mark in ("started", "go"):  # left by an earlier agent with this name
        (work / mark).unlink(missing_ok=True)
    command = Shell("touch started; until test -e go; do sleep 0.05; done")
    alice = rig.wrap(agent, name, Rule("^begin", Step(calls=(command,)), "It ran."), arguments=agent.free)
    alice.say("begin now")
    rig.wait((work / "started").exists, "the command runs")
    return alice


def finish(alice: Wrapped) -> None:
    """End the command that `at_work` started."""
    (alice.work / "go").touch()


def kill(alice: Wrapped) -> None:
    """Kill the shim in whose terminal the agent runs, with SIGKILL."""
    os.kill(alice.info()["terminal_pid"], signal.SIGKILL)
    alice.rig.wait(alice.terminal.ended, "the terminal is restored")


def ledger_of(rig: Rig) -> Path:
    return Home.from_env(rig.relay.environment).ledger


def is_being_delivered(rig: Rig, body: str) -> bool:
    """Return whether the ledger marks this message as being delivered."""
    with closing(sqlite3.connect(f"file:{ledger_of(rig)}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT 1 FROM messages WHERE body = ? AND injecting", (body,))
        return rows.fetchone() is not None


def test_a_waiting_message_is_delivered_at_the_start(rig: Rig, agent: Agent) -> None:
    """An agent may accept a message before it can act on it; that does not count as a question."""
    home = Home.from_env(rig.relay.environment).ensure()
    with Ledger(home.ledger) as ledger:
        ledger.registry.register("default", "Alice")
    rig.relay("send", "Alice", "hello from before")
    alice = rig.wrap(agent, "Alice", Rule("hello from before", "Good morning."), ready=False)
    alice.sees("Good morning")
    alice.becomes("ready")
    assert alice.model.count("hello from before") == 1
    *before, result = [event["result"] for event in alice.events("injection")]
    assert result == "injected"
    # At its start, opencode reports a prompt late.
    assert set(before) <= ({"uncertain"} if agent.name == "opencode" else set())
    assert alice.events("escalated") == []


def states(rig: Rig) -> list[str]:
    """Return the states of all messages, oldest first."""
    with Ledger(ledger_of(rig)) as ledger:
        return [str(entry.message.state) for entry in ledger.messages()]


def times_received(alice: Wrapped, text: str) -> int:
    """Return how often `text` occurs in the longest conversation sent to the agent's model."""
    return max(
        sum(entry.text.count(text) for entry in request.turn.entries if entry.role != "assistant")
        for request in alice.model.requests
    )


def test_a_working_agent_receives_messages_by_priority(rig: Rig, agent: Agent) -> None:
    """R73: urgent comes before normal in the reply to a hook; low waits until the agent is idle.

    B7: the user sees that one has come, and none ranks above the user's words.
    """
    rig.settings(teach="never", idle_seconds=IDLE)
    alice = working_agent(rig, agent)
    alice.send("the low one", 0, "--low")
    alice.send("the normal one")
    alice.send("the urgent one", 0, "--urgent")
    rig.wait(lambda: states(rig) == ["stored"] * 3, "all have arrived")
    finish(alice)
    alice.sees("It ran")
    # Text beside a tool's result would rank above the user's in Codex: it gets the messages after its turn.
    request = 2 if agent.name == "codex" else 1
    rig.wait(lambda: len(alice.model.requests) > request, "the model gets the messages")
    entries = alice.model.requests[request].turn.entries
    in_turn = "\n".join(entry.text for entry in entries)
    assert 0 < in_turn.find("the urgent one") < in_turn.find("the normal one")
    assert not any("the urgent one" in entry.text for entry in entries if entry.above)
    assert "the low one" not in in_turn
    if agent.name not in {"qwen", "copilot"}:  # which draw no hook's systemMessage
        alice.sees("relay: message from the user")
    alice.receives("the low one")
    alice.becomes("ready")
    assert states(rig) == ["injected"] * 3
    assert [alice.model.count(f"the {each} one") for each in ("low", "normal", "urgent")] == [1, 1, 1]
    assert alice.model.requests[-1].turn.user.count("the low one") == 1
    low = "door" if has_door(agent) else "typed"
    assert [row["route"] for row in rig.messages("Alice")] == [low, "native", "native"]


def test_runaway_messages_are_held_until_released(rig: Rig, agent: Agent) -> None:
    """The user is notified, and `relay release` continues them; nothing is lost or received twice."""
    rig.settings(teach="never", runaway_depth=DEPTH)
    alice = rig.wrap(agent, "Alice", Rule("begin|once more", "@relay:Bob once more"))
    bob = rig.wrap(agent, "Bob", Rule("once more", "@relay:Alice once more"))

    def quiet_with(injected: int) -> bool:
        return states(rig) == [*["injected"] * injected, "held"]

    alice.say("begin now")
    rig.wait(lambda: quiet_with(DEPTH), "the fifth is held")
    # Codex and qwen 0.24.4 ring the bell themselves at the end of a turn.
    notices = lambda: [row["text"] for row in alice.events("notice") if "held" in row["text"]]  # noqa: E731
    rig.wait(notices, "the user is notified")
    rig.wait(lambda: b"\a" in alice.terminal.output, "the bell rings")
    (notice,) = notices()
    assert notice.startswith(f"Alice's messages to Bob are held: {DEPTH + 1} messages led to it")
    assert "relay release --all" in notice
    assert rig.relay("release", "--all").stdout == "1 message released.\n"
    rig.wait(lambda: quiet_with(2 * DEPTH + 1), "they continue, and are held again")
    for each in (alice, bob):
        each.becomes("ready")
        assert times_received(each, "] once more [/relay") == each.messages().count("injected")


def test_each_member_of_a_channel_receives_its_messages_once(rig: Rig, agent: Agent) -> None:
    """The user's message reaches both, an agent's only the other; its mark names sender and channel."""
    rig.settings(teach="never", channels=["#ops"])
    alice = rig.wrap(agent, "Alice", Rule("is out", "@relay:#ops I have seen it"))
    bob = rig.wrap(agent, "Bob")
    rig.relay("send", "#ops", "The release is out")
    bob.receives("from Alice in #ops] I have seen it [/relay")
    for each in (alice, bob):
        each.receives("in #ops] The release is out [/relay")
        each.becomes("ready")
        assert each.model.count("The release is out") == 1
    assert bob.model.count("I have seen it") == 1
    assert alice.model.count("I have seen it") == 0
    assert states(rig) == ["injected"] * 3


def test_a_killed_session_delivers_no_message_twice(rig: Rig, agent: Agent) -> None:
    """The kill comes when a message is marked as being typed or injected, or once the model has it."""

    def killed(body: str, until: Callable[[Wrapped], bool], *, working: bool = False) -> Wrapped:
        """Deliver `body` by a session that is killed when `until` holds."""
        alice = working_agent(rig, agent) if working else rig.wrap(agent, "Alice")
        alice.send(body)
        if working:
            finish(alice)
        rig.wait(lambda: until(alice), f"{body!r} is being delivered")
        kill(alice)
        return alice

    sessions = [
        killed("one", lambda _: is_being_delivered(rig, "one")),
        killed("two", lambda _: is_being_delivered(rig, "two"), working=True),
        killed("three", lambda alice: alice.model.count("] three [") > 0),
        rig.wrap(agent, "Alice"),
    ]
    last = sessions[-1]
    assert last.send("four", 20) == "injected"  # everything sent earlier has arrived
    last.receives("] four [")
    last.becomes("ready")
    bodies = ("one", "two", "three", "four")
    outcomes = dict(zip(bodies, last.messages(), strict=True))
    received = {body: [each.model.count(f"] {body} [") for each in sessions] for body in bodies}
    assert received["one"][0] <= 1 and received["two"][1] <= 1, outcomes
    assert (received["three"][2], received["four"][3]) == (1, 1), outcomes
    repeated = [
        received[body][session]
        for number, body in enumerate(bodies)
        for session in range(4)
        if session != number
    ]
    assert not any(repeated), (outcomes, received)  # no other session repeats a delivery
    assert {outcomes["one"], outcomes["two"], outcomes["three"]} <= {"injected", "uncertain"}
    assert outcomes["four"] == "injected"


def test_an_interrupted_prompt_does_not_lose_the_message_with_it(rig: Rig, agent: Agent) -> None:
    """A message delivered with a draft stays in the conversation when Esc interrupts the prompt."""
    never = threading.Event()
    alice = rig.wrap(agent, "Alice", Rule("^wait", Step("Slow.", hold=never)))
    alice.type("wait for it")
    alice.sees("wait for it")
    alice.send("the rider")
    # Codex has a door only once it has had a prompt.
    waits = "injected" if has_door(agent) and agent.name != "codex" else "stored"
    rig.wait(lambda: states(rig) == [waits], "the message waits for the draft, if there is no door")
    alice.type("\r")
    alice.receives("wait for it")
    spinner = "esc (to )?(interrupt|cancel)"
    alice.sees(spinner)
    alice.type("\x1b")
    if agent.name == "opencode":
        alice.sees("esc again to interrupt")
        alice.type("\x1b")

    def over() -> bool:
        """Return whether no spinner is drawn. Qwen 0.24.4 repaints the input after the spinner."""
        painted = agent.name != "qwen" or alice.shows(r"^>\s")
        return painted and not alice.shows(f"{spinner}|esc again")

    rig.wait(over, "the turn is over")
    alice.type("\x15")  # claude and qwen 0.24.4 put the prompt back into the input
    alice.becomes("ready")
    alice.say("and now")
    alice.receives("and now")
    rig.wait(lambda: states(rig) == ["injected"], "the message was delivered")
    alice.becomes("ready")
    assert times_received(alice, "the rider") == 1
    assert any("the rider" in entry.text for entry in alice.model.requests[-1].turn.entries)


def test_send_reports_injected_once_the_model_has_the_message(rig: Rig, agent: Agent) -> None:
    """R73: `relay send --wait` waits while the agent works."""
    alice = working_agent(rig, agent)
    command = [*rig.relay.command, "send", "--json", "--wait", "40", "Alice", "are you done?"]
    with subprocess.Popen(
        command, env=rig.relay.environment, cwd=rig.relay.home, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        rig.wait(lambda: states(rig) == ["stored"], "the message waits")
        assert run.poll() is None
        assert alice.model.count("are you done?") == 0
        finish(alice)
        rig.wait(lambda: run.poll() is not None, "`relay send --wait` ends")
        (row,) = json.loads(run.stdout.read())
    assert (row["state"], run.returncode) == ("injected", 0)
    alice.receives("are you done?")
    alice.becomes("ready")
    assert alice.model.count("are you done?") == 1
