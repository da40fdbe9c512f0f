"""Sessions that are killed, stopped and replaced while the agent keeps running."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from relay.control.sessions import UNRESPONSIVE, live
from relay.home import Home
from session.fake_agent import FakeAgent, messages, ps
from support import Relay, processes_of, session_patch, wait_until

pytestmark = pytest.mark.own_team


def entry(relay: Relay, name: str = "Alice") -> dict[str, Any]:
    """Return the agent's entry in `relay ps --json`, once its session answers."""
    home = Home.from_env(relay.environment)
    return wait_until(
        lambda: next(
            (
                each.public()
                for each in live(home, relay.team)
                if each.name == name and each.state != UNRESPONSIVE
            ),
            {},
        )
    )


def wait_until_gone(relay: Relay, name: str) -> None:
    """Wait until no running agent has the name."""
    home = Home.from_env(relay.environment)
    wait_until(lambda: name not in {each.name for each in live(home, relay.team)})


def replaced(relay: Relay, before: dict[str, Any]) -> dict[str, Any]:
    """Wait for the session that replaces the one in the entry `before`; return its entry."""
    return wait_until(
        lambda: (row := entry(relay, before["name"]))["session_pid"] != before["session_pid"] and row
    )


def bodies(relay: Relay) -> list[str]:
    """Return what agents have written to the user."""
    return [message["body"] for message in messages(relay, "--to", "you")]


def wait_for_body(relay: Relay, body: str) -> None:
    wait_until(lambda: body in bodies(relay), message=lambda: str(bodies(relay)))


TURNS = 4


def test_an_agent_outlives_its_sessions(relay: Relay) -> None:
    """R88, S7: killed again and again while the agent writes, they run every directive once, in order."""
    alice = FakeAgent(relay, "Alice").wrap()
    first = before = entry(relay)
    for turn in range(TURNS):
        for number in range(5):
            alice.say(f"@relay:you {turn}.{number}")
        if turn % 3 == 0:
            wait_for_body(relay, f"{turn}.{turn % 5}")
        os.kill(before["session_pid"], signal.SIGKILL)
        alice.say(f"@relay:you {turn}.last")
        before = replaced(relay, before)
        assert before["agent_pid"] == first["agent_pid"]
        assert before["terminal_pid"] == first["terminal_pid"]
    expected = [f"{turn}.{end}" for turn in range(TURNS) for end in (*range(5), "last")]
    wait_for_body(relay, f"{TURNS - 1}.last")
    assert bodies(relay) == expected
    alice.exit(7)
    wait_until(alice.ended)
    assert [e["code"] for e in alice.events("session_end")] == [7]
    wait_until_gone(relay, "Alice")


def test_a_started_handler_is_not_started_again(relay: Relay) -> None:
    """If its outcome is unknown, that is reported."""
    (relay.home / "relay.config.py").write_text(
        "import asyncio\nfrom relay import pattern\n\n"
        "@pattern('deploy')\nasync def deploy(target, message, ctx):\n"
        "    with open('started', 'a') as log:\n        log.write(target + '\\n')\n"
        "    if message == 'slowly':\n        await asyncio.sleep(1000)\n"
    )
    relay("trust", cwd=relay.home)
    alice = FakeAgent(relay, "Alice").wrap()
    log = relay.home / "started"
    alice.say("@deploy:one now\n@deploy:two slowly")
    wait_until(lambda: log.exists() and log.read_text() == "one\ntwo\n")
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    before = replaced(relay, before)
    alice.notice("@deploy:two had started when the session ended")
    alice.say("@deploy:three now")
    wait_until(lambda: log.read_text() == "one\ntwo\nthree\n")


def test_a_session_answers_at_once_what_only_looks_and_the_rest_once_it_is_restored(relay: Relay) -> None:
    gate = relay.home / "gate"
    patch = session_patch(
        "import os\n"
        "from relay.session.output_reader import OutputReader\n"
        "empty = OutputReader._empty\n"
        "def late(self):\n"
        f"    if self._bus.restoring and os.path.exists({str(gate)!r}):\n"
        "        self._bus.loop.call_later(0.01, self._empty)\n"
        "    else:\n"
        "        empty(self)\n"
        "OutputReader._empty = late\n"
    )
    FakeAgent(relay, "Alice").wrap(env=patch)
    before = entry(relay)
    gate.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    (session,) = live(Home.from_env(relay.environment), relay.team)
    with ThreadPoolExecutor() as pool:
        roster = pool.submit(session.ask, {"op": "roster"}, 60.0)
        for _ in range(3):
            assert session.ask({"op": "info"}, 60.0)
        assert not roster.done()
        gate.unlink()
        assert roster.result()["members"] == []


def test_the_end_of_an_agent_without_a_session_is_recorded(relay: Relay) -> None:
    """Its last directives run, and its exit code is recorded."""
    bob, alice = FakeAgent(relay, "Bob").wrap(), FakeAgent(relay, "Alice").wrap()
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGSTOP)
    alice.say("@relay:Bob my last words")
    alice.exit(3)
    wait_until(lambda: before["agent_pid"] not in processes_of(relay.home))
    os.kill(before["session_pid"], signal.SIGKILL)
    # The session that runs them ends before it is on the bus: Bob's sends them at its next check (15 s).
    wait_until(lambda: "my last words" in bob.received, timeout=60)
    wait_until(alice.ended)
    assert [e["code"] for e in alice.events("session_end")] == [3]


def test_an_unresponsive_session_is_listed_and_can_be_stopped(relay: Relay) -> None:
    """S6, S13: `ps` shows both pids; `stop --now` still ends the agent."""
    alice = FakeAgent(relay, "Alice").wrap()
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGSTOP)
    (row,) = ps(relay)
    assert (row["state"], row["session_pid"], row["terminal_pid"]) == (
        "unresponsive",
        before["session_pid"],
        before["terminal_pid"],
    )
    assert "Alice has ended" in relay("stop", "--now", "Alice").stdout
    wait_until(
        lambda: not {alice_pid for alice_pid in processes_of(relay.home) if alice_pid in set(before.values())}
    )
    assert ps(relay) == []
    assert alice.folder.exists()


@pytest.mark.parametrize("hung", [False, True])
def test_reload_starts_a_new_session_with_the_current_config(relay: Relay, hung: bool) -> None:
    """U16: a new session loads the current relay.config.py; the agent is unaffected."""
    config = relay.home / "relay.config.py"
    config.write_text("from relay import pattern\n\n@pattern('say')\ndef say(message):\n    return 'old'\n")
    relay("trust", cwd=relay.home)
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("@say:it now")
    alice.receives("old")
    before = entry(relay)
    config.write_text("from relay import pattern\n\n@pattern('say')\ndef say(message):\n    return 'new'\n")
    relay("trust", cwd=relay.home)
    if hung:
        os.kill(before["session_pid"], signal.SIGSTOP)
    assert "Alice has a new session" in relay("reload", "Alice").stdout
    after = entry(relay)
    assert after["session_pid"] != before["session_pid"]
    assert after["agent_pid"] == before["agent_pid"]
    alice.say("@say:it again")
    alice.receives("new")
    assert "there is no session called 'Nobody'" in relay("reload", "Nobody", check=False).stderr


SMALL_RING = """
import sys
from relay.shim import ring
ring.SIZE = 1 << 20
ring.reserve.__defaults__ = (ring.SIZE,)
from relay.__main__ import main
sys.exit(main())
"""


def test_a_new_session_works_after_the_ring_has_wrapped(relay: Relay) -> None:
    """The next one continues from a checkpoint, knows the prompt, and nothing is lost or repeated (S9)."""
    small = Relay(relay.home, relay.team)
    small.command[1:] = ["-c", SMALL_RING]
    alice = FakeAgent(small, "Alice").wrap()
    alice.say("> ", end="")
    wait_until(lambda: explained(relay)["directives"]["lines"] == 1)
    line, pieces = "a line of a log without any useful content\n", 10
    sent = []
    for piece in range(pieces):
        alice.say(line * 3000)
        if piece % 2 == 0:
            sent.append(f"number {piece}")
            alice.say(f"@relay:you {sent[-1]}\n")
            wait_for_body(relay, sent[-1])
    wait_until(lambda: (of := explained(relay)["directives"])["read"] + of["missed"] > 1 << 20)
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    alice.say("> @relay:you the last\n@relay:you number 8\n")
    wait_until(lambda: len(bodies(relay)) >= len(sent) + 2)
    assert bodies(relay) == [*sent, "the last", "number 8"]


def test_a_new_session_knows_the_prompt_seen_by_the_last_one(relay: Relay) -> None:
    """S9: it reads all of the output again."""
    alice = FakeAgent(relay, "Alice").wrap()
    alice.say("> ", end="")
    wait_until(lambda: explained(relay)["directives"]["lines"] == 1)
    alice.say("@relay:you one")
    wait_for_body(relay, "one")
    before = entry(relay)
    os.kill(before["session_pid"], signal.SIGKILL)
    replaced(relay, before)
    alice.say("> @relay:you two")
    wait_for_body(relay, "two")
    assert bodies(relay) == ["one", "two"]


def explained(relay: Relay) -> dict[str, Any]:
    return dict(json.loads(relay("explain", "Alice", "--json").stdout))


def test_output_that_crashes_every_session_is_skipped(relay: Relay) -> None:
    """Two sessions die at the same output; the third skips it, and reports that."""
    patch = session_patch(
        "import os, signal\n"
        "from relay.readers.auto import AutoReader\n"
        "feed = AutoReader.feed\n"
        "def dies(self, data, *times):\n"
        "    if b'poison' in data:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return feed(self, data, *times)\n"
        "AutoReader.feed = dies\n"
    )
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    before = entry(relay)
    alice.say("poison\n")
    alice.notice("crashed two sessions")
    alice.say("@relay:you I am well\n")
    wait_for_body(relay, "I am well")
    assert entry(relay)["agent_pid"] == before["agent_pid"]


def test_the_agent_keeps_running_while_no_session_can_start(relay: Relay) -> None:
    """Three sessions die before they are ready. This is reported, `reload` retries, and nothing is lost."""
    broken = relay.home / "broken"
    patch = session_patch(f"import os\nif os.path.exists({str(broken)!r}):\n    raise SystemExit('broken')\n")
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    before = entry(relay)
    broken.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.say("@relay:you sent without a session\n")
    failed = wait_until(
        lambda: "session failed" in (error := relay("reload", "Alice", check=False).stderr) and error
    )
    assert "See session.log" in failed
    (row,) = ps(relay)
    assert row["state"] == "unresponsive"
    broken.unlink()
    relay("reload", "Alice")
    wait_for_body(relay, "sent without a session")
    assert entry(relay)["agent_pid"] == before["agent_pid"]
    alice.exit(4)
    wait_until(alice.ended)


def test_reload_ends_a_handler_that_blocks_the_interpreter(relay: Relay) -> None:
    """S6: the agent's terminal still works, and `reload` ends the handler."""
    (relay.home / "relay.config.py").write_text(
        "import ctypes\nfrom relay import pattern\n\n"
        "@pattern('stuck')\ndef stuck(target, message):\n"
        "    while True:\n        ctypes.PyDLL(None).sleep(1000)  # keeps the GIL\n"
    )
    relay("trust", cwd=relay.home)
    alice = FakeAgent(relay, "Alice").wrap()
    before = entry(relay)
    alice.say("@stuck:now please\n")
    wait_until(lambda: ps(relay)[0]["state"] == "unresponsive")
    alice.say("still here\n")
    assert "Alice has a new session" in relay("reload", "Alice").stdout
    after = entry(relay)
    assert (after["agent_pid"], after["terminal_pid"]) == (before["agent_pid"], before["terminal_pid"])
    alice.notice("@stuck:now had started when the session ended")


@pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc what is open")
def test_child_processes_do_not_inherit_the_sessions_descriptors(relay: Relay) -> None:
    """Otherwise a broker or a handler's daemon would keep the agent's terminal open."""
    (relay.home / "relay.config.py").write_text(
        "import os\nfrom relay import pattern\n\n"
        "@pattern('list')\ndef list_them(target, message):\n"
        "    os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', 'ls -l /proc/$$/fd > listed')\n"
    )
    relay("trust", cwd=relay.home)
    alice, listed = FakeAgent(relay, "Alice").wrap(), relay.home / "listed"
    alice.say("@list:them now\n")
    wait_until(lambda: listed.exists() and "total" in listed.read_text())
    found = wait_until(lambda: re.findall(r"\d+ -> (.*)", listed.read_text()))
    assert not [each for each in found if "ptmx" in each or "relay-ring" in each or "socket" in each]


def test_a_message_cut_off_by_a_reload_is_sent_by_the_next_session(relay: Relay) -> None:
    """A message that the old session could not commit is sent, once."""
    slow = relay.home / "slow"
    patch = session_patch(
        "import asyncio, functools, os\n"
        "from relay.builtin import relay as module\n"
        "deliver = module.deliver\n"
        "@functools.wraps(deliver)\n"
        "async def slowly(target, message, ctx):\n"
        f"    if os.path.exists({str(slow)!r}):\n"
        "        await asyncio.Event().wait()\n"
        "    return await deliver(target, message, ctx)\n"
        "module.deliver = slowly\n"
    )
    alice = FakeAgent(relay, "Alice").wrap(env=patch)
    slow.touch()
    alice.say("@relay:you cut off\n@relay:you behind it\n")
    wait_until(lambda: alice.events("directive"))
    slow.unlink()
    relay("reload", "Alice")
    wait_for_body(relay, "behind it")
    assert bodies(relay) == ["cut off", "behind it"]


def test_shim_commands_of_another_version_are_harmless(relay: Relay) -> None:
    """After an upgrade, a session may send its older shim unknown or invalid commands."""
    patch = session_patch(
        "from relay.terminal.shim_link import ShimLink\n"
        "order = ShimLink._order\n"
        "def newer(self, do, **fields):\n"
        "    order(self, 'novel')\n"
        "    order(self, do, **fields, **({} if do in ('goodbye', 'over') else {'novel': 1}))\n"
        "ShimLink._order = newer\n"
    )
    run = relay("wrap", "sh", "-c", "echo said; exit 3", env=relay.environment | patch, check=False)
    assert run.returncode == 3
    assert run.stdout == "said\n"
    log = relay.home / "state" / "session.log"
    wait_until(lambda: "unexpected keyword argument 'novel'" in log.read_text())  # the session may be slow
