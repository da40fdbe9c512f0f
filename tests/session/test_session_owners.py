"""Who owns the messages to a name: one run, an agent in one folder, or others of the same name."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.control.sessions import call
from relay.home import Home
from relay.messaging.ledger import Ledger
from session.fake_agent import FakeAgent, messages, ps
from session.test_session_replaced import entry, replaced, wait_until_gone
from support import Relay, processes_of, session_patch, wait_until

pytestmark = pytest.mark.own_team

RUN = Path(sys.executable).name.split(".")[0]
"""The name that relay derives from the command of a fake agent."""


def run(relay: Relay, *arguments: str, **more: Any) -> FakeAgent:
    """Start an agent without a configured name."""
    folder = relay.home / "fakes" / f"{relay.team}" / RUN
    for left in ("strings", "received"):  # from an earlier run
        (folder / left).unlink(missing_ok=True)
    return FakeAgent(relay, RUN).wrap(*arguments, named=False, **more)


def all_in_state(relay: Relay, state: str) -> list[dict[str, Any]]:
    """Return the messages once all of them are in `state`."""
    with Ledger(Home.from_env(relay.environment).ledger) as ledger:
        wait_until(
            lambda: {entry.message.state for entry in ledger.messages(team=relay.team)} == {state},
            message=lambda: f"{messages(relay)}",
        )
    return messages(relay)


def test_messages_to_an_ended_run_are_rejected_and_never_reach_the_next(relay: Relay) -> None:
    """U2."""
    alice, first = FakeAgent(relay, "Alice").wrap(), run(relay, "--busy")
    alice.say(f"@relay:{RUN} for the first")
    relay("send", RUN, "from the user")
    all_in_state(relay, "stored")
    first.exit()
    notice = alice.receives("is rejected")
    assert f"{RUN} has ended" in notice
    assert {row["detail"] for row in all_in_state(relay, "rejected")} == {f"{RUN} has ended"}
    wait_until_gone(relay, RUN)
    refused = relay("send", RUN, "too late", check=False)
    assert refused.returncode == 1 and f"{RUN} has ended" in refused.stderr
    alice.say(f"@relay:{RUN} also too late")
    alice.receives("and no agent has its name now")
    assert len(messages(relay)) == 2
    second = run(relay)
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives_exactly(("the user", "for the second"))
    alice.say(f"@relay:{RUN} also for the second")
    second.receives_exactly(("the user", "for the second"), ("Alice", "also for the second"))


def test_a_new_run_gets_no_receipts_for_messages_of_the_last_one(relay: Relay) -> None:
    """U2."""
    FakeAgent(relay, "Bob").wrap("--busy")
    first = run(relay)
    first.say("@relay:Bob from the first")
    (row,) = all_in_state(relay, "stored")
    first.exit()
    wait_until_gone(relay, RUN)
    relay("drop", row["id"])
    second = run(relay)
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives("for the second")
    second.say("@relay:Bob from the second")
    of_second = wait_until(lambda: [row for row in messages(relay) if row["state"] == "stored"])
    relay("drop", of_second[0]["id"])
    assert "more of your messages" not in (notice := second.receives("is rejected"))
    assert row["id"] not in notice


def test_a_run_keeps_its_messages_while_its_agent_lives(relay: Relay) -> None:
    """U2: even if its session is killed and replaced, or the agent is restarted by `relay restart`."""
    busy = run(relay, "--busy")
    relay("send", RUN, "wait for it")
    all_in_state(relay, "stored")
    before = entry(relay, RUN)
    os.kill(before["session_pid"], signal.SIGKILL)
    before = replaced(relay, before)
    all_in_state(relay, "stored")
    relay("restart", RUN)
    wait_until(lambda: entry(relay, RUN)["restarts"] == 1)
    relay("send", RUN, "and for this")
    all_in_state(relay, "stored")
    assert len(messages(relay)) == 2
    busy.exit()
    all_in_state(relay, "rejected")


def test_a_run_whose_processes_were_all_killed_has_ended(relay: Relay) -> None:
    """U2: even if no process was left to report its end."""
    run(relay, "--busy")
    relay("send", RUN, "wait for it")
    all_in_state(relay, "stored")
    row = entry(relay, RUN)
    for pid in (row["terminal_pid"], row["session_pid"], row["agent_pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: not {row["terminal_pid"], row["session_pid"], row["agent_pid"]} & {*processes_of(relay.home)}
    )
    refused = relay("send", RUN, "too late", check=False)
    assert refused.returncode == 1 and f"{RUN} has ended" in refused.stderr
    all_in_state(relay, "rejected")


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_messages_are_settled_even_if_the_session_is_killed_as_the_run_ends(relay: Relay, when: str) -> None:
    """U2, R88: all waiting messages get a final state, and none is left for the next run."""
    note = relay.home / "killed"
    patch = session_patch(
        "import os\n"
        f"if not os.path.exists({str(note)!r}):\n"
        "    from failpoints import Failpoint, Point, When, arm\n"
        "    point = Point('relay.messaging.name_owners:NameOwners.end')\n"
        f"    arm(Failpoint(point, When.{when}, note={str(note)!r}))\n"
    )
    first = run(relay, "--busy", env=patch)
    for number in range(3):
        relay("send", RUN, f"message {number}")
    all_in_state(relay, "stored")
    first.exit(3)
    wait_until(note.exists)
    wait_until_gone(relay, RUN)
    second = run(relay)
    assert {row["detail"] for row in all_in_state(relay, "rejected")} == {f"{RUN} has ended"}
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives_exactly(("the user", "for the second"))


def test_a_named_agent_gets_its_messages_only_in_its_own_folder(relay: Relay) -> None:
    """U2: an agent of that name elsewhere is notified, and has separate messages."""
    folders = [relay.home / "one", relay.home / "two"]
    for folder in folders:
        folder.mkdir()
    bob = FakeAgent(relay, "Bob").wrap("--busy", cwd=folders[0])
    relay("send", "Bob", "stored for one")
    all_in_state(relay, "stored")
    relay("stop", "Bob")
    wait_until_gone(relay, "Bob")
    relay("send", "Bob", "sent for one")
    (bob.folder / "strings").unlink()
    bob = FakeAgent(relay, "Bob").wrap(cwd=folders[1])
    bob.notice(f"2 messages for the agent of this name in {folders[0]} are waiting for that agent")
    relay("send", "--wait", "60", "Bob", "for two")
    bob.receives_exactly(("the user", "for two"))
    wait_until(lambda: [row["state"] for row in messages(relay)] == ["stored", "stored", "injected"])
    bob.exit()
    wait_until_gone(relay, "Bob")
    (bob.folder / "strings").unlink()
    (bob.folder / "received").unlink()
    bob = FakeAgent(relay, "Bob").wrap(cwd=folders[0])
    all_in_state(relay, "injected")
    assert sorted(bob.texts()) == [("the user", "sent for one"), ("the user", "stored for one")]


def test_a_broadcast_goes_to_running_agents_and_names_them(relay: Relay) -> None:
    """U2, R47."""
    alice, bob, carol = (FakeAgent(relay, name).wrap() for name in ("Alice", "Bob", "Carol"))
    other = run(relay)
    carol.exit()
    other.exit()
    for name in ("Carol", RUN):
        wait_until_gone(relay, name)
    assert relay("send", "*", "from outside").stdout.splitlines()[0] == "Sent to 2: Alice, Bob."
    assert [row["to"] for row in json.loads(relay("send", "--json", "*", "as JSON").stdout)] == [
        "Alice",
        "Bob",
    ]
    alice.say("@relay:* from within")
    bob.receives("from within")
    alice.receives("Sent to 1: Bob.")
    assert "Carol" not in {row["to"] for row in messages(relay)}
    bob.exit()
    wait_until_gone(relay, "Bob")
    alice.say("@broadcast:* hello?")
    alice.receives(f"team '{relay.team}' has no other agents, so nothing was sent")
    alice.exit()
    wait_until_gone(relay, "Alice")
    refused = relay("send", "*", "hello?", check=False)
    assert refused.returncode == 1 and "has no other agents" in refused.stderr
    wait_until(lambda: {row["state"] for row in messages(relay)} == {"injected"})


def test_a_broadcast_reaches_an_agent_whose_session_is_being_replaced(relay: Relay) -> None:
    """U2: the agent is still running, although the broker knows of no client with its name."""
    hold = relay.home / "hold"
    patch = session_patch(
        f"import os, signal\nif os.path.exists({str(hold)!r}):\n    os.kill(os.getpid(), signal.SIGSTOP)"
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap(env=patch)
    before = entry(relay, "Bob")
    hold.touch()
    os.kill(before["session_pid"], signal.SIGKILL)
    socket = relay.home / "run" / "sessions" / f"{relay.team}" / "alice.sock"
    offline = {"name": "Bob", "online": False}
    wait_until(lambda: offline in call(socket, {"op": "roster"}, 60)["members"])
    assert relay("send", "*", "hello").stdout.splitlines()[0] == "Sent to 2: Alice, Bob."
    alice.say("@relay:* hello again")
    alice.receives("Sent to 1: Bob.")
    (row,) = [row for row in ps(relay) if row["name"] == "Bob"]
    assert row["session_pid"] != before["session_pid"]
    hold.unlink()
    os.kill(row["session_pid"], signal.SIGCONT)
    bob.receives("hello again")
    wait_until(lambda: sorted(bob.texts()) == [("Alice", "hello again"), ("the user", "hello")])
