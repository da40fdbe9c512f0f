"""`relay restart`, as seen in an attached terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from support import Relay, wait_until

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

AGENT = (
    "stty -icanon; stty icanon; [ -e life ] && n=2 || n=1; touch life; "
    "echo ign$n $(grep SigIgn /proc/self/status) blk $(grep SigBlk /proc/self/status); "
    'stty size > /dev/tty; echo life $n; while read line; do echo "$n got $line"; '
    '[ "$line" = end ] && exit 7; done'
)


def test_the_terminal_stays_attached(wrap: Open, relay: Relay) -> None:
    """The user is notified, keeps typing, resizes, and gets the exit code of the last agent."""
    outer = wrap("-n", "Alice", "sh", "-c", AGENT)
    outer.see("life 1\r\n")
    outer.type("one\r")
    outer.see("1 got one\r\n")
    relay("restart", "Alice")
    outer.see("relay: restarting Alice.\r\n")
    outer.see("life 2\r\n")
    outer.type("two\r")
    outer.see("2 got two\r\n")
    ignored = [line.split()[1:] for line in outer.output.decode().splitlines() if line.startswith("ign")]
    assert ignored[0] == ignored[1], "both runs ignore and block the same signals"
    outer.type("end\r")
    assert outer.end() == 7


def test_the_modes_that_the_last_agent_set_are_undone(wrap: Open, relay: Relay, home: Path) -> None:
    (home / "tui").write_text(
        "import os, sys, time\n"
        "if os.path.exists('again'):\n    print('plain again'); sys.stdin.readline(); sys.exit(3)\n"
        "open('again', 'w').close()\n"
        "os.write(1, b'\\x1b[?1049h\\x1b[?1000h\\x1b[2J\\x1b[Hdrawn')\n"
        "time.sleep(1000)\n"
    )
    outer = wrap("-n", "Alice", sys.executable, "tui")
    outer.wait(lambda: outer.screen.alternate and outer.shows("drawn"))
    relay("restart", "Alice")
    outer.see("plain again")
    outer.wait(lambda: outer.shows("plain again") and not outer.screen.alternate)
    assert outer.shows("relay: restarting Alice.")
    outer.type("\r")
    assert outer.end() == 3


def test_job_control_works_after_a_restart(shell: Open, relay: Relay) -> None:
    outer = shell()
    outer.type("relay wrap -n Alice sh -c 'echo u\"\"p $$; read line; echo got $line; exec sleep 1000'\r")
    outer.see("up ")
    relay("restart", "Alice")
    outer.see("up ", after=outer.see("restarting Alice"))
    outer.type("\x1a")
    outer.see("Stopped")
    outer.type("fg\r")
    outer.type("again\r")
    outer.see("got again")
    outer.type("\x03")
    outer.wait(outer.prompted)
    outer.type("echo code $?\r")
    outer.see("code 130\r\n")


def test_a_restart_in_a_deleted_directory_fails(wrap: Open, relay: Relay, home: Path) -> None:
    (home / "project").mkdir()
    outer = wrap("-n", "Alice", "sh", "-c", "echo up; read line", cwd=home / "project")
    outer.see("up\r\n")
    relay("explain", "Alice")  # its session has started there
    (home / "project").rmdir()
    assert relay("restart", "Alice", check=False).returncode == 1
    outer.see("relay: Alice is not restarted: ")
    outer.see("project: No such file or directory.")
    assert outer.end() == 1


def test_losing_the_terminal_ends_the_restarting_agent_too(wrap: Open, relay: Relay) -> None:
    """The agent's owner has gone: nobody would see the next one."""
    outer = wrap("-n", "Alice", "sh", "-c", "trap '' HUP TERM; echo life; while :; do sleep 0.1; done")
    outer.see("life\r\n")
    restart = subprocess.Popen(
        [*relay.command, "restart", "Alice"],
        env=relay.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    outer.hang_up()
    output, _ = restart.communicate()
    assert "Alice" in output
    assert "is running again" not in output
    wait_until(lambda: relay("ps", "--json").stdout.strip() == "[]")


def test_an_agent_with_redirected_input_is_not_restarted(relay: Relay) -> None:
    piped = subprocess.Popen(
        [*relay.command, "wrap", "-n", "Alice", "sh", "-c", "echo up; exec sleep 1000"],
        env=relay.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert piped.stdout is not None
    piped.stdout.readline()
    done = relay("restart", "Alice", check=False)
    assert (done.returncode, "cannot be read twice" in done.stderr) == (1, True)
    os.kill(piped.pid, signal.SIGTERM)
    assert piped.wait() == 143
    piped.stdout.close()
