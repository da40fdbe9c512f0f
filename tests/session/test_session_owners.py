"""Who owns mail: sessions of one run, of one folder's agent, and others with the same name."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.control.sessions import call
from session.fake_agent import FakeAgent, messages, ps
from session.test_session_replaced import entry, replaced
from support import Relay, processes_of, session_patch, wait_until

RUN = Path(sys.executable).name.split(".")[0]
"""The name that relay derives from a fake's command."""


def run(relay: Relay, *arguments: str, **more: Any) -> FakeAgent:
    """Start an agent without a name of its own."""
    folder = relay.home / "fakes" / "default" / RUN
    for left in ("strings", "received"):  # left by the last one
        (folder / left).unlink(missing_ok=True)
    return FakeAgent(relay, RUN).wrap(*arguments, named=False, **more)


def gone(relay: Relay, name: str) -> None:
    """Return when nobody has the name."""
    wait_until(lambda: name not in {row["name"] for row in ps(relay)})


def are(relay: Relay, state: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the messages, once all are in that state."""
    return wait_until(
        lambda: (rows := messages(relay, *arguments)) and {row["state"] for row in rows} == {state} and rows,
        message=lambda: f"{messages(relay, *arguments)}",
    )


def test_a_new_run_never_gets_mail_of_the_last_one_whose_senders_are_told(relay: Relay) -> None:
    """U2."""
    alice, first = FakeAgent(relay, "Alice").wrap(), run(relay, "--busy")
    alice.say(f"@relay:{RUN} for the first")
    relay("send", RUN, "from the user")
    are(relay, "stored")
    first.exit()
    heard = alice.receives("is rejected")
    assert f"{RUN} has ended" in heard
    assert {row["detail"] for row in are(relay, "rejected")} == {f"{RUN} has ended"}
    gone(relay, RUN)
    refused = relay("send", RUN, "too late", check=False)
    assert refused.returncode == 1 and f"{RUN} has ended" in refused.stderr
    alice.say(f"@relay:{RUN} too late, too")
    alice.receives("and no agent has its name now")
    assert len(messages(relay)) == 2
    second = run(relay)
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives_exactly(("the user", "for the second"))
    alice.say(f"@relay:{RUN} also for the second")
    second.receives_exactly(("the user", "for the second"), ("Alice", "also for the second"))


def test_a_new_run_does_not_hear_what_became_of_what_the_last_one_sent(relay: Relay) -> None:
    """U2."""
    FakeAgent(relay, "Bob").wrap("--busy")
    first = run(relay)
    first.say("@relay:Bob from the first")
    (row,) = are(relay, "stored")
    first.exit()
    gone(relay, RUN)
    relay("drop", row["id"])
    second = run(relay)
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives("for the second")
    second.say("@relay:Bob from the second")
    of_second = wait_until(lambda: [row for row in messages(relay) if row["state"] == "stored"])
    relay("drop", of_second[0]["id"])
    assert "more of your messages" not in (heard := second.receives("is rejected"))
    assert row["id"] not in heard


def test_a_run_keeps_its_mail_as_long_as_its_agent_lives(relay: Relay) -> None:
    """U2: the run's session may be killed and replaced, or the agent restarted by `relay restart`."""
    busy = run(relay, "--busy")
    relay("send", RUN, "wait for it")
    are(relay, "stored")
    before = entry(relay, RUN)
    os.kill(before["pid"], signal.SIGKILL)
    before = replaced(relay, before)
    are(relay, "stored")
    relay("restart", RUN)
    wait_until(lambda: entry(relay, RUN)["restarts"] == 1)
    relay("send", RUN, "and for this")
    are(relay, "stored")
    assert len(messages(relay)) == 2
    busy.exit()
    are(relay, "rejected")


def test_a_run_that_is_killed_with_everything_has_ended(relay: Relay) -> None:
    """U2: nobody has reported its end."""
    run(relay, "--busy")
    relay("send", RUN, "wait for it")
    are(relay, "stored")
    row = entry(relay, RUN)
    for pid in (row["terminal_pid"], row["pid"], row["agent_pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not {row["terminal_pid"], row["pid"], row["agent_pid"]} & {*processes_of(relay.home)})
    refused = relay("send", RUN, "too late", check=False)
    assert refused.returncode == 1 and f"{RUN} has ended" in refused.stderr
    are(relay, "rejected")


@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_a_session_that_is_killed_as_the_run_ends_is_followed_by_one_that_ends_it(
    relay: Relay, when: str
) -> None:
    """U2, R88: everything waiting gets a final state, and nothing is left for the next run."""
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
    are(relay, "stored")
    first.exit(3)
    wait_until(note.exists)
    gone(relay, RUN)
    second = run(relay)
    assert {row["detail"] for row in are(relay, "rejected")} == {f"{RUN} has ended"}
    relay("send", "--wait", "60", RUN, "for the second")
    second.receives_exactly(("the user", "for the second"))


def test_an_agent_with_a_name_of_its_own_finds_its_mail_in_its_folder_only(relay: Relay) -> None:
    """U2: an agent of that name elsewhere is told, and has separate mail."""
    folders = [relay.home / "one", relay.home / "two"]
    for folder in folders:
        folder.mkdir()
    bob = FakeAgent(relay, "Bob").wrap("--busy", cwd=folders[0])
    relay("send", "Bob", "stored for one")
    are(relay, "stored")
    relay("stop", "Bob")
    gone(relay, "Bob")
    relay("send", "Bob", "queued for one")
    (bob.folder / "strings").unlink()
    bob = FakeAgent(relay, "Bob").wrap(cwd=folders[1])
    bob.notice(f"2 messages for the agent of this name in {folders[0]} are waiting for that agent")
    relay("send", "--wait", "60", "Bob", "for two")
    bob.receives_exactly(("the user", "for two"))
    assert [row["state"] for row in messages(relay)] == ["stored", "queued", "injected"]
    bob.exit()
    gone(relay, "Bob")
    (bob.folder / "strings").unlink()
    (bob.folder / "received").unlink()
    bob = FakeAgent(relay, "Bob").wrap(cwd=folders[0])
    are(relay, "injected")
    assert sorted(bob.texts()) == [("the user", "queued for one"), ("the user", "stored for one")]


def test_a_broadcast_goes_to_who_is_there_and_says_to_how_many(relay: Relay) -> None:
    """U2, R47."""
    alice, bob, carol = (FakeAgent(relay, name).wrap() for name in ("Alice", "Bob", "Carol"))
    other = run(relay)
    carol.exit()
    other.exit()
    for name in ("Carol", RUN):
        gone(relay, name)
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
    gone(relay, "Bob")
    alice.say("@broadcast:* is anybody there?")
    alice.receives("team 'default' has no other agents, so nothing was sent")
    alice.exit()
    gone(relay, "Alice")
    refused = relay("send", "*", "hello?", check=False)
    assert refused.returncode == 1 and "has no other agents" in refused.stderr
    assert {row["state"] for row in messages(relay)} == {"injected"}


def test_a_broadcast_reaches_an_agent_whose_session_is_being_replaced(relay: Relay) -> None:
    """U2: the agent is not gone, although the broker knows nobody of its name."""
    hold = relay.home / "hold"
    patch = session_patch(
        f"import os, signal\nif os.path.exists({str(hold)!r}):\n    os.kill(os.getpid(), signal.SIGSTOP)"
    )
    alice, bob = FakeAgent(relay, "Alice").wrap(), FakeAgent(relay, "Bob").wrap(env=patch)
    before = entry(relay, "Bob")
    hold.touch()
    os.kill(before["pid"], signal.SIGKILL)
    socket = relay.home / "run" / "sessions" / "default" / "alice.sock"
    away = {"name": "Bob", "online": False}
    wait_until(lambda: away in call(socket, {"op": "roster"}, 60)["members"])
    assert relay("send", "*", "hello").stdout.splitlines()[0] == "Sent to 2: Alice, Bob."
    alice.say("@relay:* hello again")
    alice.receives("Sent to 1: Bob.")
    (row,) = [row for row in ps(relay) if row["name"] == "Bob"]
    assert row["pid"] != before["pid"]
    hold.unlink()
    os.kill(row["pid"], signal.SIGCONT)
    bob.receives("hello again")
    wait_until(lambda: sorted(bob.texts()) == [("Alice", "hello again"), ("the user", "hello")])
