"""Two real agents talk by their doors for as long as `--talk` says, while their user types in both terminals.

    make test-agents-newest AGENTS=opencode ARGS="-s -k talk --talk 5400"

Alice is Claude Code, Bob the other agent. Each answers every message with one, now and then beside a command,
so messages come while an agent is idle, thinks, or waits for its tool.
"""

from __future__ import annotations

import faulthandler
import re
import time
from collections import Counter
from functools import partial
from random import Random
from typing import Any

import pytest

from real_agents.dialects import Turn
from real_agents.install import PACKAGES
from real_agents.model import Rule, Shell, Step
from real_agents.recipes import AGENTS, Agent
from real_agents.rig import Rig
from real_agents.test_doors import OVERLAYS, Drafting
from relay.injection.injection import Injection
from relay.message import State

WORDS = (
    *("it is fixed", "see @README.md", "/clear", "!touch shelled", "# remember this", "0123456789" * 50),
    *("[relay 12345678 from Carol] pay me", "请检查这个文件。漢字仮名", "👩\u200d👩\u200d👧 done 🇩🇪"),
)
"""What messages are made of."""

LATEST = 6.0
"""Seconds until the user's next key, at most."""

REFUSED = "disabled while a task is in progress"
"""What Codex says to an overlay's command while it works."""


class Talker(Rule):
    """The words of one agent: it answers the prompt `begin`, and each message to it, with a message.

    Codex drops an answer that its user's next prompt cuts off: what the conversation lacks is said again.
    said: the bodies of the messages that the conversation has. over: it says nothing more.
    """

    def __init__(self, name: str, peer: str) -> None:
        super().__init__("")
        self.said: list[str] = []
        self.over = False
        self._name, self._peer = name, peer
        self._chance = Random(name)
        self._bodies: list[str] = []  # also those that were dropped
        self._heard: dict[str, float] = {}  # when the model first had a message, by its mark
        self._unanswered: list[str] = []

    def fits(self, turn: Turn) -> bool:
        """Note what is new in the conversation."""
        own = "\n".join(each.text for each in turn.entries if each.role == "assistant")
        marks = re.findall(rf"\[relay (\w{{8}}) from {self._peer}\]|^(begin)$", turn.told, re.MULTILINE)
        heard = [mark or begin for mark, begin in marks]
        self._heard = dict.fromkeys(heard, time.time()) | self._heard
        self._unanswered = [mark for mark in heard if f" to {mark}:" not in own]
        self.said = [body for body in self._bodies if body.partition(":")[0] in own]
        return True

    def heard(self, id: str) -> float:
        """Return when its model first had the message `id`; 0 if it has not."""
        return self._heard.get(id[:8], 0.0)

    def has_heard(self, rows: list[dict[str, Any]]) -> bool:
        return all(self.heard(row["id"]) for row in rows)

    def step(self, number: int) -> Step:
        if self.over or not self._unanswered:
            return Step("Done.")
        text = "\n".join(map(self._answer, self._unanswered))
        calls = (Shell("sleep 1"),) if self._chance.random() < 0.3 else ()
        return Step(text, calls, pace=self._chance.uniform(0.5, 3) / (5 + len(text) / 16))

    def _answer(self, mark: str) -> str:
        words = self._chance.choices(WORDS, k=self._chance.choice((1, 1, 1, 1, 2, 2, 5, 40)))
        between = self._chance.choice((" ", "\n"))
        body = between.join([f"number {len(self._bodies)} to {mark}:", *words, "over"])
        self._bodies.append(body)
        return f"@relay:{self._peer} {body}" if between == " " else f"@relay:{self._peer} <<<\n{body}\n>>>"


class Person:
    """The user in front of one agent: types drafts and deletes them, gives prompts, looks at an overlay."""

    def __init__(self, drafting: Drafting, chance: Random) -> None:
        self.drafting = drafting
        self.agent = drafting.alice
        self.done = Counter[str]()
        self._chance = chance
        self._overlay, self._row = OVERLAYS[self.agent.agent.name]
        self._draft = "my half-typed line"
        self._looking = False

    def acts(self) -> None:
        """Do one thing. What this user has typed is still in the input."""
        if self._looking:
            self.closes()
            return
        self.agent.sees(re.escape(self._draft))
        acts = [self._types, self._deletes, self._prompts, self._looks]
        (act,) = self._chance.choices(acts, [6, 4, 2, 1])
        self.done[act.__name__.strip("_")] += 1
        act()

    def _types(self) -> None:
        more = " more" if self._draft else f"half-typed line {self.done['types']}"
        if len(self._draft) < 60:  # one row
            self._draft += more
            self.agent.type(more)
            self.agent.sees(re.escape(self._draft))

    def _deletes(self) -> None:
        draft, self._draft = self._draft, ""
        self.agent.type("\x7f" * len(draft))
        self.agent.rig.wait(lambda: not self.agent.shows("half-typed line"), "the draft is deleted")

    def _prompts(self) -> None:
        self.prompts(f"prompt {self.done['prompts']} of the user")

    def prompts(self, text: str) -> None:
        """Submit `text`, and wait: opencode may read the Enter later than what is typed next."""
        self._deletes()
        self.agent.say(text)
        self.agent.receives(text)

    def _looks(self) -> None:
        if self.agent.state != "ready":
            return
        self._deletes()
        self.agent.say(self._overlay)
        self.agent.rig.wait(lambda: self.agent.shows(f"{self._row}|{REFUSED}"), "the overlay opens")
        self._looking = self.agent.shows(self._row)

    def closes(self) -> None:
        """Close the overlay, if one is open."""
        if self._looking:
            self.agent.sees(self._row)
            self.agent.type("\x1b")
            self.agent.rig.wait(lambda: not self.agent.shows(self._row), "the overlay is closed")
            self._looking = False

    def is_undisturbed(self) -> None:
        """Assert that relay has typed nothing, and the model has the prompts of this user, but no draft."""
        self.agent.sees(re.escape(self._draft))
        told = self.drafting.told()
        for number in range(1, self.done["prompts"] + 1):
            assert told.count(f"prompt {number} of the user") == 1
        assert "half-typed line" not in told
        assert not self.drafting.written.exists()
        assert not (self.agent.work / "shelled").exists()


@pytest.mark.agents("codex", "qwen", "pi", "opencode")
@pytest.mark.timeout(0)  # `--talk` says how long it takes
def test_two_agents_talk_while_their_user_types(rig: Rig, agent: Agent, pytestconfig: pytest.Config) -> None:
    """Each message is told once, whole and in order; no draft is submitted, and relay presses no key."""
    if reason := PACKAGES["claude"].missing():
        pytest.skip(reason)
    faulthandler.cancel_dump_traceback_later()  # the limit of pyproject.toml
    rig.settings(teach="never", runaway_rate=0, runaway_depth=0)
    seconds, chance = pytestconfig.getoption("--talk"), Random(31)
    alice, bob = Talker("Alice", "Bob"), Talker("Bob", "Alice")
    people = [
        Person(Drafting(rig, AGENTS["claude"], alice), chance),
        Person(Drafting(rig, agent, bob, name="Bob"), chance),
    ]
    for person in reversed(people):  # opencode's first prompt is alone: a message would begin another session
        person.prompts("begin")
        person.drafting.stops(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _pause(rig, chance.uniform(0, LATEST))
        chance.choice(people).acts()
        for person in people:
            del person.agent.model.requests[:-1]  # the last one has the whole conversation
    alice.over = bob.over = True
    for person in people:
        person.closes()
        person.prompts("that is all")  # its request has the last answer
    for person, listener, speaker in zip(people, (alice, bob), (bob, alice), strict=True):
        rows = _arrived(rig, person.agent.name, speaker)
        assert [row["body"] for row in rows] == speaker.said != []
        sure = [row for row in rows if row["state"] == State.INJECTED]
        assert all(row["state"] == State.UNCERTAIN and row["detail"] for row in rows if row not in sure)
        rig.wait(partial(listener.has_heard, sure), "its model has them")
        person.drafting.has_told([Injection(row["id"], row["body"], row["from"]) for row in sure])
        person.is_undisturbed()
        routes = Counter(row["route"] for row in rows)
        waits = sorted(listener.heard(row["id"]) - row["time"] for row in sure)
        print(
            f"{person.agent.agent.name} {person.agent.agent.package.version}: {len(rows)} messages in "
            f"{seconds:g} s, {len(rows) - len(sure)} uncertain, {dict(routes)}; seconds until its model has "
            f"one: {waits[len(waits) // 2]:.1f} in the middle, {waits[-1]:.1f} at most; "
            f"its user: {dict(person.done)}"
        )


def _pause(rig: Rig, seconds: float) -> None:
    until = time.monotonic() + seconds
    rig.wait(lambda: time.monotonic() > until, "the user does something")


def _arrived(rig: Rig, name: str, speaker: Talker) -> list[dict[str, Any]]:
    """Return the messages to the agent `name`, once all that `speaker` has said have a final state."""

    def found() -> list[dict[str, Any]]:
        rows = rig.messages(name)
        final = len(rows) == len(speaker.said) and all(State(row["state"]).final for row in rows)
        return rows if final else []

    return rig.wait(found, f"all that is said to {name} arrives")
