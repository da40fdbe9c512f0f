"""The guarantee with real agents: a model gets each message once and in order, or it is visibly waiting."""

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
from real_agents.rig import Rig, Wrapped
from relay.home import Home
from relay.messaging.ledger import Ledger

pytestmark = pytest.mark.agents("claude", "codex", "qwen", "opencode")

IDLE = 1.0
"""Seconds without output after which an agent counts as idle."""

DEPTH = 4
"""Messages in a chain of replies before the user speaks."""


def at_work(rig: Rig, agent: Agent, name: str = "Alice") -> Wrapped:
    """Return an agent that runs a command until `finish`."""
    work = rig.relay.home / name / "work"
    for mark in ("started", "go"):  # of an earlier agent with this name
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
    """Kill -9 the shim in whose terminal the agent runs."""
    os.kill(alice.info()["terminal_pid"], signal.SIGKILL)
    alice.rig.wait(alice.terminal.ended, "the terminal is given back")


def ledger_of(rig: Rig) -> Path:
    return Home.from_env(rig.relay.environment).ledger


def is_noted(rig: Rig, body: str) -> bool:
    """Return whether the ledger says that this message is being delivered to its receiver."""
    with closing(sqlite3.connect(f"file:{ledger_of(rig)}?mode=ro", uri=True)) as db:
        rows = db.execute("SELECT 1 FROM inbox WHERE body = ? AND injecting", (body,))
        return rows.fetchone() is not None


def test_a_message_that_waits_as_it_starts(rig: Rig, agent: Agent) -> None:
    """An agent may accept the message before it can run it; that does not look like a question."""
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
    # opencode reports a prompt late as it starts.
    assert set(before) <= ({"uncertain"} if agent.name == "opencode" else set())
    assert alice.events("escalated") == []


def states(rig: Rig) -> list[str]:
    """Return the states of all messages, oldest first."""
    with Ledger(ledger_of(rig)) as ledger:
        return [str(entry.message.state) for entry in ledger.messages()]


def told(alice: Wrapped, text: str) -> int:
    """Return how often `text` occurs in the longest conversation sent to the agent's model."""
    return max(
        sum(said.text.count(text) for said in request.turn.said if said.role != "assistant")
        for request in alice.model.requests
    )


def test_priorities_decide_what_a_working_agent_hears(rig: Rig, agent: Agent) -> None:
    """R73: urgent overtakes normal in the reply to the tool's hook; low waits until the agent is idle."""
    rig.settings(teach="never", idle_seconds=IDLE)
    alice = at_work(rig, agent)
    alice.send("the low one", 0, "--low")
    alice.send("the normal one")
    alice.send("the urgent one", 0, "--urgent")
    rig.wait(lambda: states(rig) == ["stored"] * 3, "all have arrived")
    finish(alice)
    alice.sees("It ran")
    in_turn = "\n".join(said.text for said in alice.model.requests[1].turn.said)
    assert 0 < in_turn.find("the urgent one") < in_turn.find("the normal one")
    assert "the low one" not in in_turn
    alice.receives("the low one")
    alice.becomes("ready")
    assert states(rig) == ["injected"] * 3
    assert [alice.model.count(f"the {each} one") for each in ("low", "normal", "urgent")] == [1, 1, 1]
    assert alice.model.requests[-1].turn.user.count("the low one") == 1
    assert [row["route"] for row in rig.messages("Alice")] == ["typed", "native", "native"]


def test_agents_that_answer_each_other_for_ever_are_held(rig: Rig, agent: Agent) -> None:
    """The user is notified, and `relay release` lets them continue; nothing is lost or received twice."""
    rig.settings(teach="never", runaway_depth=DEPTH)
    alice = rig.wrap(agent, "Alice", Rule("begin|once more", "@relay:Bob once more"))
    bob = rig.wrap(agent, "Bob", Rule("once more", "@relay:Alice once more"))

    def quiet_with(injected: int) -> bool:
        return states(rig) == [*["injected"] * injected, "held"]

    alice.say("begin now")
    rig.wait(lambda: quiet_with(DEPTH), "the fifth is held")
    # Codex and qwen 0.24.4 ring the bell themselves at the end of a turn.
    notices = lambda: [row["text"] for row in alice.events("notice") if "held" in row["text"]]  # noqa: E731
    rig.wait(notices, "the user is told")
    rig.wait(lambda: b"\a" in alice.terminal.output, "the bell rings")
    (notice,) = notices()
    assert notice.startswith(f"Alice's messages to Bob are held: {DEPTH + 1} messages led to it")
    assert "relay release --all" in notice
    assert rig.relay("release", "--all").stdout == "1 message released.\n"
    rig.wait(lambda: quiet_with(2 * DEPTH + 1), "they have gone on, and are held again")
    for each in (alice, bob):
        each.becomes("ready")
        assert told(each, "] once more [/relay") == each.messages().count("injected")


def test_a_channel_is_heard_by_each_member_once(rig: Rig, agent: Agent) -> None:
    """The user's message reaches both, an agent's reaches the other; the mark names sender and channel."""
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


def test_a_killed_session_gives_nothing_twice(rig: Rig, agent: Agent) -> None:
    """The kill comes after recording a typed or carried message, or once the model has one."""

    def killed(body: str, until: Callable[[Wrapped], bool], *, working: bool = False) -> Wrapped:
        """Deliver `body` with a session that is killed at that moment."""
        alice = at_work(rig, agent) if working else rig.wrap(agent, "Alice")
        alice.send(body)
        if working:
            finish(alice)
        rig.wait(lambda: until(alice), f"{body!r} is being delivered")
        kill(alice)
        return alice

    lives = [
        killed("one", lambda _: is_noted(rig, "one")),
        killed("two", lambda _: is_noted(rig, "two"), working=True),
        killed("three", lambda alice: alice.model.count("] three [") > 0),
        rig.wrap(agent, "Alice"),
    ]
    last = lives[-1]
    assert last.send("four", 20) == "injected"  # everything sent earlier has arrived by now
    last.receives("] four [")
    last.becomes("ready")
    bodies = ("one", "two", "three", "four")
    became = dict(zip(bodies, last.messages(), strict=True))
    heard = {body: [each.model.count(f"] {body} [") for each in lives] for body in bodies}
    assert heard["one"][0] <= 1 and heard["two"][1] <= 1, became
    assert (heard["three"][2], heard["four"][3]) == (1, 1), became
    again = [heard[body][life] for number, body in enumerate(bodies) for life in range(4) if life != number]
    assert not any(again), (became, heard)  # no other life repeats what one life has begun to give
    assert {became["one"], became["two"], became["three"]} <= {"injected", "uncertain"}
    assert became["four"] == "injected"


def test_a_prompt_that_is_taken_back_takes_no_message_with_it(rig: Rig, agent: Agent) -> None:
    """A message delivered with a draft stays in the conversation when Esc takes the prompt back."""
    never = threading.Event()
    alice = rig.wrap(agent, "Alice", Rule("^wait", Step("Slow.", hold=never)))
    alice.type("wait for it")
    alice.sees("wait for it")
    alice.send("the rider")
    rig.wait(lambda: states(rig) == ["stored"], "the message waits beside the draft")
    alice.type("\r")
    rig.wait(lambda: alice.model.requests, "the model is asked")
    spinner = "esc (to )?(interrupt|cancel)"
    alice.sees(spinner)
    alice.type("\x1b")
    if agent.name == "opencode":
        alice.sees("esc again to interrupt")
        alice.type("\x1b")

    def over() -> bool:
        """Return whether no spinner is drawn. Qwen 0.24.4 repaints all rows, the input after the spinner."""
        painted = agent.name != "qwen" or alice.shows(r"^>\s")
        return painted and not alice.shows(f"{spinner}|esc again")

    rig.wait(over, "the turn is over")
    alice.type("\x15")  # claude and qwen 0.24.4 put the prompt back into their input
    alice.becomes("ready")
    alice.say("and now")
    alice.receives("and now")
    rig.wait(lambda: states(rig) == ["injected"], "the message was given")
    alice.becomes("ready")
    assert told(alice, "the rider") == 1
    assert any("the rider" in said.text for said in alice.model.requests[-1].turn.said)


def test_send_says_injected_when_the_model_has_the_message(rig: Rig, agent: Agent) -> None:
    """R73: `relay send --wait` waits while the agent works, and returns once the message has reached it."""
    alice = at_work(rig, agent)
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
