"""Attaching to agents that do not answer, have lost their terminal, or are attached elsewhere or ending."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emulator import Emulator

from relay.control.claiming import claim
from relay.errors import NameInUse
from relay.home import Home
from support import Relay, wait_until

Open = Callable[..., Emulator]


def _attach(terminal: Open, name: str, *flags: str) -> Emulator:
    return terminal(sys.executable, "-m", "relay", "attach", *flags, name)


@pytest.fixture
def mute(home: Path) -> Iterator[threading.Semaphore]:
    """Run Mute, a shim that never answers; yield a semaphore that each attach request releases."""
    folder = home / "run" / "sessions" / "default"
    folder.mkdir(parents=True, mode=0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "mute.shim"))
    listener.listen()
    held = claim(Home.from_env({"RELAY_HOME": str(home)}), "default", "Mute")
    asked, kept = threading.Semaphore(0), []

    def serve() -> None:
        while True:
            try:
                channel, _ = listener.accept()
            except OSError:
                return
            kept.append(channel)
            assert b"attach" in channel.recv(1 << 16)
            asked.release()

    thread = threading.Thread(target=serve)
    thread.start()
    yield asked
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    held.release()
    for each in (listener, *kept):
        each.close()


def test_attaching_to_an_unresponsive_shim_times_out(mute: threading.Semaphore, terminal: Open) -> None:
    """A signal during the wait ends the command and restores the terminal."""
    signals = (None, signal.SIGTERM, signal.SIGHUP)
    outers = [_attach(terminal, "Mute") for _ in signals]
    for _ in signals:
        outers[0].wait(lambda: mute.acquire(blocking=False))
    for number, outer in zip(signals, outers, strict=True):
        outer.wait(outer.raw)
        if number is not None:
            os.kill(outer.pid, number)
    for number, outer in zip(signals, outers, strict=True):
        assert outer.end() == (1 if number is None else -number)
        assert outer.modes() == outer.before
    assert b"does not answer" in outers[0].output


# Ignores the hang-up, and reads nothing, so it never notices.
IGNORES_HANG_UP = "trap '' HUP; echo up; exec sleep 1000"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see that the terminal is closed")
def test_an_agent_without_a_terminal_cannot_be_attached(wrap: Open, terminal: Open, relay: Relay) -> None:
    first = wrap("-n", "Deaf", "sh", "-c", IGNORES_HANG_UP)
    first.see("up\r\n")
    wait_until(lambda: "Deaf" in relay("ps").stdout)
    shim = Path(f"/proc/{json.loads(relay('ps', '--json').stdout)[0]['terminal_pid']}/fd")

    def terminals() -> list[Path]:
        found = []
        for link in shim.iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has just been closed
                found += [link] if "ptmx" in str(link.readlink()) else []
        return found

    assert len(terminals()) == 1
    first.hang_up()
    wait_until(lambda: not terminals())
    second = _attach(terminal, "Deaf", "--takeover")
    assert second.end() == 1
    assert second.modes() == second.before
    assert b"no longer has a terminal" in second.output
    assert "Deaf" in relay("ps").stdout
    relay("stop", "--now", "Deaf")  # otherwise it would use all of its closing time


def test_a_replaced_terminal_shows_how_to_take_over_again(wrap: Open, terminal: Open, relay: Relay) -> None:
    first = wrap("-n", "Both", "sh", "-c", "echo up; read a; echo got $a; read b")
    first.see("up\r\n")
    wait_until(lambda: "Both" in relay("ps").stdout)
    second = _attach(terminal, "Both", "--takeover")
    second.wait_for("up")
    first.see("press Enter")
    first.type("\r")
    assert first.end() == 0
    assert b"take over again with `relay attach --takeover Both`" in first.output
    second.type("word\r")
    second.wait_for("got word")


def test_a_replaced_terminal_discards_keys_even_after_a_resize(
    wrap: Open, terminal: Open, relay: Relay
) -> None:
    first = wrap("-n", "Both", "sh", "-c", "echo up; read a")
    first.see("up\r\n")
    wait_until(lambda: "Both" in relay("ps").stdout)
    _attach(terminal, "Both", "--takeover").wait_for("up")
    first.see("press Enter")
    first.resize(90, 20)
    os.kill(first.pid, signal.SIGCONT)
    keys = bytearray(b"for the agent" * 20_000)  # more than a terminal buffers: the client must read it

    def typed() -> bool:
        with contextlib.suppress(BlockingIOError):
            del keys[: os.write(first.master, keys)]
        return not keys

    first.wait(lambda: typed() or not first.raw())
    assert first.raw()
    first.type("\r")
    assert first.end() == 0


def test_kitty_protocol_keys_detach(wrap: Open, relay: Relay) -> None:
    outer = wrap("-n", "Keys", "sh", "-c", "stty raw -echo; echo up; exec cat -v")
    outer.see("up")
    wait_until(lambda: "Keys" in relay("ps").stdout)
    outer.type("\x1b[93;5u")
    outer.see("^[[93;5u")
    outer.type("\x1b[93;5u\x1b[93;5:3ud")
    assert outer.end() == 0
    assert outer.modes() == outer.before
    assert b"Keys keeps running" in outer.output


def test_a_claim_waits_for_a_session_that_is_ending(
    wrap: Open, relay: Relay, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`relay wrap` returns before the last output has been processed; the name can be reused at once."""
    (home / "relay.config.py").write_text(
        "import asyncio, os\nfrom relay import on\n\n"
        "@on('session_end')\nasync def ended(reason, ctx):\n"
        "    while not os.path.exists('go'):\n        await asyncio.sleep(0.01)\n"
    )
    relay("trust", cwd=home)
    first = wrap("-n", "Same", "sh", "-c", "until test -S $RELAY_SOCKET; do sleep 0.02; done; :")
    assert first.end() == 0
    polls = []

    def between_two_polls(seconds: float) -> None:
        (home / "go").touch()
        polls.append(select.select([], [], [], seconds))

    monkeypatch.setattr("relay.control.claiming.time.sleep", between_two_polls)
    claim(Home.from_env(relay.environment), "default", "Same").release()
    assert polls


def test_the_name_of_a_running_session_is_refused_at_once(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay("wrap", "-d", "-n", "Lives", "cat")
    monkeypatch.setattr("relay.control.claiming.time.sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(NameInUse, match="relay attach Lives"):
        claim(Home.from_env(relay.environment), "default", "Lives")
