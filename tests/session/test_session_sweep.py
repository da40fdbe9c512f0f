"""Sessions killed or hung at every step: the agent keeps running, and its directives run once.

Each run is the same: the session starts, reads directives, sends, calls handlers, types messages, is
replaced, and ends with its agent. Afterwards the agents, the handlers, the ledger and the journal must agree.
"""

from __future__ import annotations

import itertools
import json
import os
import pkgutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from relay.errors import LedgerError
from relay.home import Home
from relay.message import Message, State
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent
from support import Relay, session_patch, wait_until

PATIENCE = 60.0  # seconds

LONG = pytest.mark.skipif(
    not os.environ.get("RELAY_LONG"), reason="each way to die at each step: set RELAY_LONG=1 (some minutes)"
)

RULES = """{"hooks": {"SessionEnd": [
    {"type": "command", "command": "echo rule >> \\"$RELAY_HOME/$RELAY_NAME.counted\\""}
]}}"""

CONFIG = """
import os
from relay import on, pattern

def note(name, what):
    fd = os.open(os.path.join(os.environ["RELAY_HOME"], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, what.encode() + b"\\n")
    os.close(fd)

@pattern("count")
def count(target, message):
    note(target + ".counted", message)

@on("session_end")
def ended(event, ctx):
    note(ctx.agent_name + ".counted", "end")
"""

_SESSION = "relay.session.session:"
_LINK = "relay.terminal.shim_link:ShimLink."
_HANDLERS = "relay.features.handler_runner:HandlerRunner."
_PROGRESS = "relay.storage.progress:Progress."
_OUTBOX = "relay.messaging.outbox:Outbox."
_CLIENT = "relay.messaging.client:MessagingClient."
_INBOX = "relay.messaging.inbox:Inbox."
_MQTT = "relay.transport.mqtt:MqttTransport."


@dataclass(frozen=True, slots=True)
class Step:
    """One step. kind: as in failpoints.Point. in_hand: the session is holding a record of the ring."""

    target: str
    kind: str | None = None
    in_hand: bool = False

    def __str__(self) -> str:
        return self.target.rpartition(":")[2] + (f" of a {self.kind}" if self.kind else "")


START = [
    Step(_LINK + "__init__"),
    Step(_SESSION + "make_core"),
    Step(_SESSION + "Session.began"),
    Step(_LINK + "ready"),
    Step(_HANDLERS + "_start"),
    Step("relay.messaging.ledger:NameRegistry.register"),
    Step(_MQTT + "connect"),
    Step(_MQTT + "publish", "presence"),
]
RESUME = [
    Step(_PROGRESS + "_read"),
    Step("relay.session.restoration:Restoration.end"),
    Step(_HANDLERS + "_ask_ledger"),
]
"""Only a session that replaces another one takes these."""
READ = [
    Step("relay.directives.pipeline:OutputPipeline.output", in_hand=True),
    Step(_HANDLERS + "directive", in_hand=True),
    Step("relay.shim.ring_reader:RingReader.done", in_hand=True),
    Step(_PROGRESS + "begin"),
    Step("relay.hooks.runner:Runner.dispatch"),
    Step("relay.builtin.relay:deliver"),
    Step(_PROGRESS + "done"),
]
SEND = [
    Step(_OUTBOX + "send"),
    Step(_CLIENT + "_sent"),
    Step(_MQTT + "send"),
    Step(_OUTBOX + "outcomes"),
]
TYPE = [
    Step(_INBOX + "arrived"),
    Step("relay.features.mailbox:Mailbox._give"),
    Step(_INBOX + "injecting"),
    Step("relay.injection.typist:Typist.type"),
    Step(_LINK + "write"),
    Step("relay.injection.typist:Typist._written"),
    Step(_INBOX + "settle"),
    Step(_CLIENT + "_settled"),
]
RELOAD = [
    Step(_SESSION + "Session._make_way"),
    Step("relay.features.mailbox:Mailbox.close"),
    Step(_PROGRESS + "close"),
    Step(_LINK + "close"),
]
END = [
    Step(_SESSION + "Session.exited", in_hand=True),
    Step(_SESSION + "Session._hear_out"),
    Step(_SESSION + "Session._act_on_last_words"),
    Step(_SESSION + "Session._part"),
    Step("relay.features.terminals:Terminals.goodbye"),
    Step(_LINK + "goodbye"),
    Step(_LINK + "done"),
]
STEPS = [*START, *RESUME, *READ, *SEND, *TYPE, *RELOAD, *END]


@dataclass(frozen=True, slots=True)
class Death:
    """What happens to the session at a step: SIGKILL, or SIGSTOP until the user reloads it."""

    step: Step
    when: str
    signal: signal.Signals = signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.when} {self.step}" + (" hangs" if self.signal == signal.SIGSTOP else "")


class Life:
    """The life of one agent. Each session dies at the next of `deaths`, until none is left."""

    _ledger: Ledger

    def __init__(self, relay: Relay, bob: FakeAgent, deaths: Sequence[Death]) -> None:
        self._bob = bob
        self._deaths = deaths
        self._name = f"A{next(_numbers)}"
        self._alice = FakeAgent(relay, self._name)
        self._note = self._alice.folder / "deaths"
        self._reloaded = 0
        self._home = Home.from_env(relay.environment)
        self._counted = relay.home / f"{self._name}.counted"

    def live(self) -> None:
        """Run all of it. Raise AssertionError if the death of a session had a visible effect."""
        with Ledger(self._home.ledger) as self._ledger:
            self._live()

    def _live(self) -> None:
        alice, bob = self._alice, self._bob
        self._wrap()
        first = self._until(lambda: (status := self._status()).get("agent_pid") and status)
        alice.say(f"@relay:Bob 1\n@count:{self._name} a\n@relay:Bob 2")
        self._until(lambda: len(self._died()) >= self._begins_with(*START, *READ, *SEND))
        bob.say(f"@relay:{self._name} one\n@relay:{self._name} two")
        self._until(lambda: self._settled(2, 2) and self._is_replaced())
        self._request("reload")
        self._until(lambda: self._status()["generation"] > first["generation"] and self._status()["ready"])
        alice.say(f"@relay:Bob 3\n@count:{self._name} b")
        bob.say(f"@relay:{self._name} three")
        self._until(lambda: self._settled(3, 3))
        self._until(self._has_read)  # the echo shows relay a message before the agent reads it
        last = self._status()
        assert (last["agent_pid"], last["terminal_pid"]) == (first["agent_pid"], first["terminal_pid"])
        alice.exit(7)
        self._until(lambda: not self._status())
        self._compare()

    def _wrap(self) -> None:
        """Start it; if its session dies, the next one answers the waiting `relay wrap`."""
        relay, folder = self._alice.relay, self._alice.folder
        wrapped = subprocess.Popen(
            [*relay.command, "wrap", "-d", "-n", self._name, *map(str, self._alice.command())],
            env={**relay.environment, **session_patch(self._patch())},
            cwd=relay.home,
            stdout=subprocess.DEVNULL,
        )
        try:
            self._until(lambda: wrapped.poll() is not None)
            assert wrapped.returncode == 0
        finally:
            wrapped.kill()
            wrapped.wait()
        self._until(lambda: (folder / "strings").exists() and (folder / "received").exists())

    def _compare(self) -> None:
        """Compare the files of the agents and handlers with the ledger and the journal."""
        assert len(self._died()) == len(self._deaths), "it never reached that step"
        journal = self._alice.events()
        notices = [e["text"] for e in journal if "text" in e]
        kinds = [e["event"] for e in journal]
        assert kinds.count("session_start") <= 1
        assert [e["code"] for e in journal if e["event"] == "session_end"] == [7]
        skipped = any("crashed two sessions" in text for text in notices)
        assert skipped <= self._may_skip()
        # What the agent sent arrived exactly once, in order.
        outward, messages = self._messages()
        sent = [message.body for message in outward]
        received = [body for sender, body in self._bob.texts() if sender == self._name]
        assert sent == received
        assert sent == ["1", "2", "3"] or (skipped and sent == sorted(set(sent)))
        # What was sent to the agent arrived once, in order, or is uncertain.
        assert [m.body for m in messages] == ["one", "two", "three"]
        given = [body for _, body in self._alice.texts()]
        assert given == [m.body for m in messages if m.body in given]
        unsure = [m for m in messages if m.state is State.UNCERTAIN]
        later = self._deaths[
            self._begins_with(*START, *READ, *SEND) :
        ]  # the first ones came before the texts
        assert len(unsure) <= sum(death.step not in (*RELOAD, *END) for death in later)
        assert all(m.body in given for m in messages if m not in unsure)
        # Each handler ran at most once; unknown outcomes are reported.
        counted = self._counted.read_text().split() if self._counted.exists() else []
        assert sorted(set(counted)) == sorted(counted)
        unknown = sum("its outcome is unknown" in text for text in notices)
        assert len({"a", "b"} - set(counted)) <= unknown + skipped
        ended = "handlers of session_end were begun" in " ".join(notices)
        assert "end" in counted or ended

    def _may_skip(self) -> bool:
        """Return True if two sessions died holding the same record."""
        steps = [death.step for death in self._deaths if death.step.in_hand]
        return len(steps) > len(set(steps))

    def _settled(self, said: int, given: int) -> bool:
        outward, inward = self._messages()
        enough = len(outward) >= said or (self._may_skip() and len(self._died()) > 1)
        return enough and len(inward) >= given and all(m.state.final for m in (*outward, *inward))

    def _is_replaced(self) -> bool:
        """Return True once the deaths before the reload are over, and the next session is ready.

        A receipt settles a message before its last steps, so `_settled` may come first.
        """
        died, status = len(self._died()), self._status()
        if died < self._begins_with(*START, *READ, *SEND, *TYPE):
            return False
        return bool(status.get("ready")) and status["generation"] > died

    def _begins_with(self, *steps: Step) -> int:
        """Return at how many of `steps` sessions die before one dies at another step."""
        return len({death.step for death in itertools.takewhile(lambda d: d.step in steps, self._deaths)})

    def _has_read(self) -> bool:
        _, inward = self._messages()
        injected = {m.body for m in inward if m.state is not State.UNCERTAIN}
        return injected <= {body for _, body in self._alice.texts()}

    def _messages(self) -> tuple[list[Message], list[Message]]:
        """Return the messages from the agent to Bob, and those from Bob to it."""
        outward = self._ledger.messages(sender=self._name, to="Bob")
        inward = self._ledger.messages(sender="Bob", to=self._name)
        return [entry.message for entry in outward], [entry.message for entry in inward]

    def _patch(self) -> str:
        deaths = [(d.step.target, d.step.kind, d.when, int(d.signal)) for d in self._deaths]
        return (
            "import os\n"
            f"note, deaths = {str(self._note)!r}, {deaths!r}\n"
            "died = os.path.getsize(note) if os.path.exists(note) else 0\n"
            "if died < len(deaths):\n"
            "    from failpoints import Failpoint, Point, When, arm\n"
            "    target, kind, when, number = deaths[died]\n"
            "    arm(Failpoint(Point(target, kind), When(when), note=note, signal=number))\n"
        )

    def _died(self) -> Sequence[Death]:
        return self._deaths[: self._note.stat().st_size if self._note.exists() else 0]

    def _until(self, condition: Any) -> Any:
        """Wait for `condition`; reload a session that hangs."""

        def check() -> Any:
            hung = sum(death.signal == signal.SIGSTOP for death in self._died())
            if hung > self._reloaded and self._request("reload"):
                self._reloaded = hung
            try:
                return condition()
            except LedgerError:  # locked by the hung session
                return None

        return wait_until(
            check,
            PATIENCE,
            lambda: (
                f"{self._died()} {self._status()}\n"
                f"{self._messages()}\n{self._bob.received}\n{self._alice.log()}"
            ),
        )

    def _status(self) -> dict[str, Any]:
        return self._request("status")

    def _request(self, operation: str) -> dict[str, Any]:
        """Send a request to the shim; return its answer, {} without a shim."""
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(PATIENCE)
            try:
                channel.connect(str(self._home.run / "sessions" / "default" / f"{self._name.lower()}.shim"))
                channel.sendall(json.dumps({"op": operation}).encode() + b"\n")
                answer: dict[str, Any] = json.loads(channel.makefile().readline())
            except (OSError, ValueError):
                return {}
        return answer


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bob(shared: Relay) -> Iterator[FakeAgent]:
    """Yield an agent whose sessions survive, in a home with handlers."""
    (shared.home / "relay.config.py").write_text(CONFIG)
    (shared.home / "config").mkdir()
    (shared.home / "config" / "hooks.json").write_text(RULES)
    shared("trust", cwd=shared.home)
    yield FakeAgent(shared, "Bob").wrap()


WHENS = ("before", "after")
EACH = {step: Death(step, WHENS[number % 2]) for number, step in enumerate(STEPS)}
LIVES = [
    [EACH[step] for step in steps if step is not None]
    for steps in itertools.zip_longest([*START, *RESUME], [*READ, *SEND], TYPE, [*RELOAD, *END])
]
"""Each step once: in each life, sessions die as they start, as they act, as they type, and as they end."""
ONCE = [*RELOAD, Step(_HANDLERS + "_start"), Step(_MQTT + "send"), Step(_LINK + "done")]
"""Steps that a second session in the same life does not reach."""
REPEATED = [Death(step, when) for step, when in itertools.product(STEPS, WHENS) if step not in ONCE]
SOME = {
    *(_LINK + name for name in ("ready", "write", "goodbye")),
    "relay.directives.pipeline:OutputPipeline.output",
    _OUTBOX + "send",
    _INBOX + "injecting",
    _SESSION + "Session._make_way",
}
"""Steps at which the rarer faults are tried even without RELAY_LONG."""


def rare(death: Death) -> Any:
    chosen = death.step.target in SOME and death == EACH[death.step]
    return pytest.param(death, marks=() if chosen else LONG, id=str(death))


def test_each_step_exists(subtests: pytest.Subtests) -> None:
    """Most are tried with RELAY_LONG only."""
    for step in STEPS:
        with subtests.test(step.target):
            assert callable(pkgutil.resolve_name(step.target))


def named(deaths: Sequence[Death], *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(deaths, marks=marks, id=", ".join(map(str, deaths)))


@pytest.mark.parametrize(
    "deaths",
    [
        *map(named, LIVES),
        *(named([Death(*each)], LONG) for each in itertools.product(STEPS, WHENS)),
    ],
)
def test_sessions_killed_at_any_step_have_no_effect(
    shared: Relay, bob: FakeAgent, deaths: Sequence[Death]
) -> None:
    """R88."""
    Life(shared, bob, deaths).live()


@pytest.mark.parametrize("death", [rare(death) for death in REPEATED])
def test_two_sessions_killed_at_the_same_step_have_no_effect(
    shared: Relay, bob: FakeAgent, death: Death
) -> None:
    """R88: the output that they held may be skipped, which is reported."""
    Life(shared, bob, [death, death]).live()


HANGS = [Death(step, when, signal.SIGSTOP) for step, when in itertools.product(STEPS, WHENS)]
_STEPS = {*SOME, _SESSION + "Session._act_on_last_words"}
_SOME = [hang for hang in HANGS if hang.step.target in _STEPS and hang.when == EACH[hang.step].when]


@pytest.mark.parametrize(
    "deaths",
    [
        *(named(_SOME[n : n + 2]) for n in range(0, len(_SOME), 2)),
        *(named([hang], LONG) for hang in HANGS),
    ],
)
def test_sessions_that_hang_at_any_step_can_be_replaced(
    shared: Relay, bob: FakeAgent, deaths: Sequence[Death]
) -> None:
    """R88, S6."""
    Life(shared, bob, deaths).live()


@pytest.mark.parametrize("death", [rare(death) for death in REPEATED])
def test_a_replacement_killed_while_it_starts_has_no_effect(
    shared: Relay, bob: FakeAgent, death: Death
) -> None:
    """R88."""
    starting = [*START, *RESUME]
    starting.remove(Step(_HANDLERS + "_start"))
    chosen = starting[REPEATED.index(death) % len(starting)]
    Life(shared, bob, [death, Death(chosen, WHENS[REPEATED.index(death) % 3 % 2])]).live()
