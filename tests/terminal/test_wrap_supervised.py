"""The pause between two runs of a supervised agent, as seen in its terminal."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from emulator import Emulator

from session.fake_agent import ps
from session.test_session_supervised import record
from support import PATIENCE, Relay, wait_until

Open = Callable[..., Emulator]

AGENT = "echo x >> $RELAY_NAME; echo life $(wc -l < $RELAY_NAME); read line; echo got $line; exit 3"
SLOW = json.dumps({"restart": "on-failure", "backoff": 3600, "backoff_max": 3600, "max_restarts": 9})
KEYS = "relay: press r to restart it now, q to quit, d to detach.\r\n"


NAMES = map("Alice{}".format, itertools.count())


@pytest.fixture
def relay(shared: Relay) -> Relay:
    """Return the module's home: each test has an agent of its own."""
    return shared


@pytest.fixture
def name() -> str:
    """Return the name of the test's agent."""
    return next(NAMES)


def wrapped(wrap: Open, name: str, policy: str = SLOW) -> Emulator:
    outer = wrap("-n", name, "--supervision", policy, "sh", "-c", AGENT)
    outer.see("life 1\r\n")
    outer.type("one\r")
    return outer


def entry(relay: Relay, name: str) -> dict[str, Any]:
    """Return the agent's entry in `relay ps`, or an empty one."""
    return next((row for row in ps(relay) if row["name"] == name), {})


def paused(outer: Emulator, name: str) -> None:
    """Wait for the pause; its end is random, up to a fifth later."""
    outer.see(f"relay: {name} exited with 3; restarting in ")
    outer.see(KEYS)


def test_r_restarts_the_agent_now(wrap: Open, name: str) -> None:
    outer = wrapped(wrap, name)
    paused(outer, name)
    for report in (
        "\x1b]11;rgb:dddd/dddd/dddd\x1b\\",
        "\x1bP1+r436f\x1b\\",
        "\x1b[Mqqq",
        "\x1b[<0;1;1d",
        "\x1bq",
    ):
        outer.type(report)
    outer.type("xyz\rr")
    at = outer.see(f"relay: restarting {name}.\r\n")
    outer.see("life 2\r\n", after=at)
    outer.type("two\r")
    outer.see("got two\r\n", after=at)


LONG_DELAY = """
import sys
from relay.shim import pause
pause.CHOICE_DELAY = 3600.0
from relay.__main__ import main
sys.exit(main())
"""


def test_keys_typed_for_the_agent_choose_nothing(
    terminal: Open, relay: Relay, name: str, subtests: pytest.Subtests
) -> None:
    """The agent ends while the user is typing: keys count only once the choices are shown."""
    options = ("-n", name, "--supervision", SLOW)
    outer = terminal(sys.executable, "-c", LONG_DELAY, "wrap", *options, "sh", "-c", AGENT)
    at = outer.see("life 1\r\n")
    for life, keys in enumerate(("q", "\x03", "d", "r"), 2):
        with subtests.test(keys):
            outer.type("one\r")
            at = outer.see(f"relay: {name} exited with 3; restarting in ", after=at)
            outer.type(keys)
            relay("restart", name)
            at = outer.see(f"life {life}\r\n", after=at)
    outer.type("two\r")
    outer.see("got two\r\n", after=at)
    assert KEYS.encode() not in outer.output


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_q_and_ctrl_c_quit(wrap: Open, relay: Relay, name: str, key: str) -> None:
    outer = wrapped(wrap, name)
    paused(outer, name)
    outer.type(key)
    assert outer.end() == 3
    assert outer.restored()
    wait_until(lambda: not entry(relay, name))
    ended = wait_until(lambda: (found := record(relay, name)).get("phase") == "off" and found)
    assert (ended["wanted"], ended["exit_code"]) == ("down", 3)


def test_d_detaches_and_attaching_shows_the_pause_again(
    wrap: Open, terminal: Open, relay: Relay, name: str
) -> None:
    outer = wrapped(wrap, name)
    paused(outer, name)
    outer.type("d")
    assert outer.end() == 0
    assert entry(relay, name)["state"] == "backoff"
    again = terminal(sys.executable, "-m", "relay", "attach", name)
    paused(again, name)
    again.type("r")
    again.see("life 2\r\n")


def test_the_agent_restarts_by_itself(wrap: Open, name: str) -> None:
    outer = wrapped(wrap, name, json.dumps({"restart": "on-failure", "backoff": 0.05}))
    outer.see("life 2\r\n", after=outer.see(f"relay: restarting {name}.\r\n"))


def test_the_end_of_the_supervision_is_explained(wrap: Open, name: str) -> None:
    outer = wrapped(wrap, name, json.dumps({"restart": "on-failure", "max_restarts": 1, "backoff": 0.05}))
    outer.see("life 2\r\n")
    outer.type("two\r")
    assert outer.end() == 3
    outer.see(
        f"relay: warning: {name} exited with 3; restarted once within 15 min. "
        f"It will not be restarted again. `relay resume {name}` starts it.\r\n"
    )


@pytest.mark.parametrize("how", ["hang up", "SIGTERM"])
def test_losing_the_terminal_in_the_pause_ends_the_supervision(
    wrap: Open, relay: Relay, name: str, how: str
) -> None:
    """It would also end the agent."""
    outer = wrapped(wrap, name)
    paused(outer, name)
    if how == "hang up":
        outer.hang_up()
    else:
        os.kill(entry(relay, name)["terminal_pid"], signal.SIGTERM)
    wait_until(lambda: not entry(relay, name))
    ended = wait_until(lambda: (found := record(relay, name)).get("phase") == "off" and found)
    assert ended["wanted"] == "up"


@pytest.mark.parametrize("agent", ["trap 'exit 3' HUP", ":"])
def test_losing_the_terminal_before_the_pause_ends_the_supervision(
    wrap: Open, relay: Relay, name: str, agent: str
) -> None:
    """The loss may be what ends the agent."""
    outer = wrap("-n", name, "--supervision", SLOW, "sh", "-c", f"{agent}; echo up; read line; exit 3")
    outer.see("up\r\n")
    outer.hang_up()
    wait_until(lambda: not entry(relay, name))
    ended = wait_until(lambda: (found := record(relay, name)).get("phase") == "off" and found)
    assert ended["wanted"] == "up"


def test_an_agent_ended_by_the_user_is_not_restarted(wrap: Open, relay: Relay, name: str) -> None:
    outer = wrap("-n", name, "--restart", "always", "sh", "-c", "echo up; read line; exit 1")
    outer.see("up\r\n")
    outer.type("\x03")
    assert outer.end() == 130
    ended = wait_until(lambda: (found := record(relay, name)).get("phase") == "done" and found)
    assert ended["reason"] == "was ended by SIGINT, at your request"


@contextlib.contextmanager
def attached(relay: Relay, name: str) -> Iterator[tuple[int, Iterator[int]]]:
    """Attach a terminal to the agent; yield its master, and the process groups that its shim reports."""
    master, slave = pty.openpty()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(PATIENCE)
        channel.connect(str(relay.home / "run" / "sessions" / "default" / f"{name.lower()}.shim"))
        request = {"op": "attach", "interactive": True, "saved": None, "takeover": True}
        socket.send_fds(channel, [json.dumps(request).encode() + b"\n"], [slave, slave])
        with channel.makefile() as lines:
            events = map(json.loads, lines)
            yield master, (event["group"] for event in events if event["event"] == "agent")
    os.close(slave)
    os.close(master)


def test_a_client_forgets_the_process_group_of_an_ended_agent(relay: Relay, name: str) -> None:
    """It kills the group if the shim is killed, and the group's id may be another program's by then."""
    relay("wrap", "-d", "-n", name, "--supervision", SLOW, "sh", "-c", AGENT)
    with attached(relay, name) as (terminal, groups):
        assert next(groups) == entry(relay, name)["agent_pid"]
        os.write(terminal, b"one\r")
        assert next(groups) == 0
    with attached(relay, name) as (_, groups):
        assert next(groups) == 0
        relay("restart", name)
        assert next(filter(None, groups)) == entry(relay, name)["agent_pid"]
        relay("restart", name)
        assert next(groups) == 0
        assert next(groups) == entry(relay, name)["agent_pid"]
