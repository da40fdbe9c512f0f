"""`relay ps`, `wrap`, `stop`, `events` and `explain` with real sessions."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from session.fake_agent import FakeAgent, SharedAgent, messages, project, ps, settings
from support import Relay, wait_until


def test_ps_lists_the_agents_with_their_team_and_directory(relay: Relay) -> None:
    folder = project(relay, "x = 1\n", trust=False)
    before = time.time()
    FakeAgent(relay, "Alice").wrap(cwd=folder)
    FakeAgent(relay, "bob", team="red").wrap()
    alice, bob = ps(relay)
    assert {key: alice[key] for key in ("name", "team", "agent", "prompt", "cwd")} == {
        "name": "Alice", "team": "default", "agent": "generic", "prompt": None, "cwd": str(folder),
    }  # fmt: skip
    assert (bob["name"], bob["team"]) == ("bob", "red")
    assert before - 1 <= alice["since"] <= time.time()
    os.kill(alice["session_pid"], 0)
    assert [row["name"] for row in json.loads(relay("ps", "-t", "red", "--json").stdout)] == ["bob"]
    header, first, second = relay("ps").stdout.splitlines()
    assert header.split() == ["NAME", "TEAM", "AGENT", "PID", "STATE", "FOR", "DIRECTORY"]
    assert first.split()[:4] == ["Alice", "default", "generic", str(alice["agent_pid"])]
    assert second.split()[:4] == ["bob", "red", "generic", str(bob["agent_pid"])]


STATES: dict[str, tuple[str, ...]] = {
    "ready": (),
    "prompting": ("--ready", "Overwrite it? [y/N] "),
    "unsafe": ("--ready", "\x1b[?1049hediting"),
    "working": ("--busy",),
}


@pytest.mark.parametrize("state", STATES)
def test_ps_shows_the_state_of_an_agent(shared: Relay, state: str) -> None:
    agent = FakeAgent(shared, state).wrap(*STATES[state])
    wait_until(lambda: agent.state() == state, message=lambda: agent.state())
    (row,) = [row for row in ps(shared) if row["name"] == state]
    assert row["prompt"] == ("other" if state == "prompting" else None)
    shared("stop", "--now", state)


def test_an_agent_whose_shim_was_killed_is_not_listed(relay: Relay) -> None:
    FakeAgent(relay, "Alice").wrap()
    os.kill(ps(relay)[0]["terminal_pid"], 9)
    wait_until(lambda: ps(relay) == [])
    FakeAgent(relay, "alice").wrap()  # the name is free again
    assert [row["name"] for row in ps(relay)] == ["alice"]


def test_a_name_in_use_is_refused(alice: SharedAgent) -> None:
    done = alice.relay("wrap", "-d", "-n", "ALICE", "cat", check=False)
    assert done.returncode == 1
    assert "a session called ALICE is running in team default. Choose another name with -n" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-n", "two words", "cat"), 2, "'two words' is not a valid name"),
        (("-n", "a/b", "cat"), 2, "'a/b' is not a valid name"),
        (("-n", "x" * 300, "cat"), 2, "has 300 characters; use at most 64"),
        (("-n", "you", "cat"), 2, "the name 'you' is reserved"),
        (("-n", "Spawn", "cat"), 2, "the name 'Spawn' is reserved"),
        (("-n", "User", "cat"), 2, "the name 'User' is reserved"),
        (("-t", "../up", "cat"), 2, "'../up' is not a valid team"),
        (("no-such-command-anywhere",), 127, "no-such-command-anywhere"),
        (("/etc/passwd",), 126, "/etc/passwd"),
        ((), 2, "no command was given"),
        (("--nonsense", "cat"), 2, "wrap has no option '--nonsense'"),
    ],
)
def test_an_invalid_wrap_is_an_error(
    shared: Relay, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = [row["name"] for row in ps(shared)]
    done = shared("wrap", "-d", *arguments, check=False)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert [row["name"] for row in ps(shared)] == before


def test_a_name_in_two_teams_needs_a_team(relay: Relay) -> None:
    for team in ("red", "blue"):
        FakeAgent(relay, "Bob", team=team).wrap()
    done = relay("stop", "Bob", check=False)
    assert done.returncode == 1
    assert "sessions called 'Bob' run in several teams (blue, red). Choose one with --team." in done.stderr
    assert relay("stop", "-t", "red", "bob", "Bob").stdout == "Bob has ended.\n"
    assert [row["team"] for row in ps(relay)] == ["blue"]


def test_events_are_followed_across_a_rotation(relay: Relay) -> None:
    alice = FakeAgent(relay, "Alice").wrap()
    path = relay.home / "state" / "events.jsonl"
    with subprocess.Popen(
        [*relay.command, "events", "-f", "--json", "alice"],
        env=relay.environment, cwd=relay.home, stdout=subprocess.PIPE, text=True,
    ) as following:  # fmt: skip
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event"] == "session_start"
        alice.say("@memory:save before the rotation")
        alice.receives("Saved")
        path.rename(path.with_name("events.jsonl.1"))
        alice.say("@memory:save after the rotation")
        bodies = []
        for line in following.stdout:
            if (entry := json.loads(line))["event"] == "directive":
                bodies.append(entry["body"])
            if len(bodies) == 2:
                break
        assert bodies == ["before the rotation", "after the rotation"]
        following.terminate()


def test_events_start_with_the_latest_entries(relay: Relay) -> None:
    path = relay.home / "state" / "events.jsonl"
    path.parent.mkdir(exist_ok=True)

    def write(*names: str) -> None:
        with path.open("a") as journal:
            journal.writelines(f'{{"time": 0, "event": "noted", "name": "{name}"}}\n' for name in names)

    write("Ann", "Bob", "Ann", "Ann", "Bob")
    assert [line.split()[2] for line in relay("events", "-n", "2").stdout.splitlines()] == ["noted"] * 2
    assert len(relay("events", "-n", "2", "Bob").stdout.splitlines()) == 2
    assert len(relay("events", "-n", "99").stdout.splitlines()) == 5
    write(*["Eve"] * 60)
    shown = relay("events", "Eve")
    assert len(shown.stdout.splitlines()) == 50
    assert shown.stderr == "(10 earlier events omitted; --all shows all.)\n"
    assert [len(relay("events", "Eve", all).stdout.splitlines()) for all in ("--all", "--json")] == [60, 60]
    write("Ann", "Bob")
    with subprocess.Popen(
        [*relay.command, "events", "-f", "-n", "2", "--json"],
        env=relay.environment, cwd=relay.home, stdout=subprocess.PIPE, text=True,
    ) as following:  # fmt: skip
        assert following.stdout is not None
        names = [json.loads(following.stdout.readline())["name"] for _ in range(2)]
        write("Cy", "Dee")
        names += [json.loads(following.stdout.readline())["name"] for _ in range(2)]
        assert names == ["Ann", "Bob", "Cy", "Dee"]
        following.terminate()


def test_events_escape_control_characters(alice: SharedAgent) -> None:
    relay = alice.relay
    relay("send", "Alice", "\x1b]0;owned\x07 \u202etxt")
    wait_until(lambda: alice.events("message_received"))
    out = relay("events", "ALICE").stdout
    assert "message_received" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert relay("events", "Nobody").stdout == ""


def test_ps_and_explain_show_the_bus_and_waiting_and_held_messages(relay: Relay) -> None:
    settings(relay, "runaway_rate = 1\n")
    bob = FakeAgent(relay, "Bob").wrap("--ready", "Overwrite it? [y/N] ")
    alice = FakeAgent(relay, "Alice").wrap()
    wait_until(lambda: [row["bus"] for row in ps(relay)] == ["connected"] * 2)
    assert "Bus: connected to mqtt://127.0.0.1:" in relay("explain", "Alice").stdout
    alice.say("@relay:Bob one\n@relay:Bob two\n@relay:Bob three")
    wait_until(lambda: [(row["held"], row["waiting"]) for row in ps(relay)] == [(2, 0), (0, 1)])
    wait_until(lambda: "ready (2 held)" in relay("ps").stdout)
    explained = relay("explain", "Alice").stdout
    assert "2 messages of its own held: " in explained and "`relay release --from Alice`" in explained
    explained = relay("explain", "Bob").stdout
    assert "1 message waiting until it is ready: `relay messages --to Bob --state stored`" in explained
    assert "1 text waiting to be given: " in explained
    relay("drop", messages(relay, "--state", "stored")[0]["id"])

    def nothing_waits() -> bool:
        explained = relay("explain", "Bob").stdout
        return "stored" not in explained and "waiting" not in explained

    wait_until(nothing_waits)
    bob.exit()
    wait_until(lambda: len(ps(relay)) == 1)
    done = relay("explain", "Bob", check=False)
    assert "Bob has not run since " in done.stderr and " 2 messages for it wait" in done.stderr
    assert "`relay messages --to Bob`" in done.stderr
    assert "messages" not in relay("explain", "Nobody", check=False).stderr


def test_ps_and_explain_say_why_an_agent_is_off_the_bus(shared: Relay) -> None:
    FakeAgent(shared, "Off").wrap(options=("--broker", "mqtt://127.0.0.1:1"))
    (row,) = wait_until(lambda: [r for r in ps(shared) if r["name"] == "Off" and r["bus"] != "connecting"])
    assert "127.0.0.1:1" in row["bus"] and (row["held"], row["waiting"]) == (0, 0)
    assert "(off the bus)" in shared("ps").stdout
    assert f"Bus: {row['bus'].rstrip('.')}." in shared("explain", "Off").stdout


def test_a_program_with_a_reserved_name_gets_another(shared: Relay) -> None:
    (shared.home / "assistant").symlink_to("/bin/cat")
    before = {row["name"] for row in ps(shared)}
    shared("wrap", "-d", "./assistant")
    assert {row["name"] for row in ps(shared)} - before == {"assistant-2"}


def test_the_user_holds_an_agent_until_they_release_it(relay: Relay) -> None:
    """Supervised or not, and whatever becomes of its session."""
    alice = FakeAgent(relay, "Alice").wrap()
    assert relay("hold", "Alice").stdout == "Alice is held.\n"
    wait_until(lambda: ps(relay)[0]["state"] == "held")
    relay("send", "Alice", "hello")
    relay("reload", "Alice")
    wait_until(lambda: "put on hold by you" in relay("explain", "Alice").stdout)
    assert relay("hold", "Alice").stdout == "Alice was held before.\n"
    (item,) = json.loads(relay("inbox", "--json").stdout)
    assert (item["kind"], item["next"]) == ("held", "relay release --agent Alice")
    assert alice.received == ""
    relay("release", "--agent", "Alice")
    alice.receives("hello")
    assert ps(relay)[0]["state"] != "held" and relay("inbox", "--json").stdout.strip() == "[]"
