"""Job control: the keys that send signals, and the shell's fg and bg."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from debian import require
from session.fake_agent import ps
from support import Relay, wait_until

pytestmark = pytest.mark.shared_home

Open = Callable[..., Emulator]


def _state(relay: Relay, name: str) -> list[str]:
    return [row["state"] for row in ps(relay) if row["name"] == name]


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x1c", 131)])
def test_ctrl_c_and_ctrl_backslash_end_the_agent(key: str, code: int, shell: Open) -> None:
    outer = shell()
    outer.type("stty -a > before\r")
    outer.type("relay wrap sh -c 'echo up; exec sleep 1000'\r")
    outer.see("up\r\n")
    outer.type(key)
    outer.wait(outer.prompted)
    outer.type("echo code $?; stty -a | diff before - && echo same\r")
    outer.see(f"code {code}\r\n")
    outer.see("same\r\n")


def test_the_agent_can_handle_ctrl_c(wrap: Open) -> None:
    outer = wrap("sh", "-c", "trap 'echo no' INT; echo up; while :; do read line && exit 3; done")
    outer.see("up\r\n")
    outer.type("\x03")
    outer.see("no\r\n")
    outer.type("x\r")
    assert outer.end() == 3


def test_ctrl_z_stops_the_job_and_fg_resumes_it(shell: Open, home: Path) -> None:
    (home / "text").write_text("".join(f"line {number}\n" for number in range(100)))
    outer = shell()
    outer.type("clear\r")
    outer.type(f"relay wrap {require('vim')} -u NONE -i NONE -n text\r")
    outer.wait_for("line 10")
    for _ in range(2):
        outer.type("\x1a")
        outer.wait(lambda: outer.shows("Stopped") and outer.prompted() and not outer.screen.alternate)
        assert not outer.shows("line 10")
        outer.type("stty -a | grep -o '[-]*icanon'; clear\r")
        outer.see("\ricanon\r\n")
        outer.wait(outer.prompted)
        outer.type("fg\r")
        outer.wait(lambda: outer.screen.alternate and outer.shows("line 10"))
        assert outer.raw()
    outer.type("Goend\x1b:wq\r")
    outer.wait(outer.prompted)
    assert (home / "text").read_text().endswith("line 99\nend\n")


def test_a_resumed_agent_gets_the_new_size(shell: Open, relay: Relay) -> None:
    """The agent is no longer shown as stopped, although it prints nothing."""
    outer = shell()
    outer.type("relay wrap -n Resumed sh -c 'echo up; read line; stty size'\r")
    outer.see("up\r\n")
    outer.type("\x1a")
    outer.wait(lambda: outer.shows("Stopped") and outer.prompted())
    outer.wait(lambda: _state(relay, "Resumed") == ["stopped"])
    outer.resize(77, 22)
    outer.type("fg\r")
    outer.see("fg\r\n")
    outer.wait(outer.raw)
    outer.wait(lambda: _state(relay, "Resumed") == ["ready"])
    outer.type("\r")
    outer.see("22 77\r\n")


def test_bg_resumes_the_job_and_fg_returns_the_keyboard(shell: Open, home: Path) -> None:
    os.mkfifo(home / "gate")
    outer = shell()
    outer.type("relay wrap sh -c 'echo up; read go < gate; echo went $go; read line; echo got $line'\r")
    outer.see("up\r\n")
    outer.type("\x1a")
    outer.wait(lambda: outer.shows("Stopped") and outer.prompted())
    outer.type("bg\r")
    outer.type("echo on > gate\r")
    outer.see("went on\r")
    outer.type("echo mine\r")
    outer.see("\rmine\r\n")
    outer.type("fg\r")
    outer.wait(outer.raw)
    outer.type("yours\r")
    outer.see("got yours\r\n")


def test_an_agent_started_in_the_background_leaves_the_terminal_alone(shell: Open) -> None:
    outer = shell()
    outer.type("relay wrap sh -c 'echo up; read line; echo got $line' &\r")
    outer.see("up\r")
    outer.type("\recho mine\r")
    outer.see("\rmine\r\n")
    outer.type("fg\r")
    outer.see("fg\r\n")
    outer.wait(lambda: outer.raw() and not outer.screen.bracketed_paste)
    outer.type("yours\r")
    outer.see("got yours\r\n")


def test_a_full_screen_program_in_the_background_is_stopped(shell: Open, home: Path) -> None:
    outer = shell()
    outer.type(f"relay wrap {require('vim')} -u NONE -i NONE -n text\r")
    outer.wait(lambda: outer.screen.alternate)
    outer.type("\x1a")
    outer.wait(lambda: outer.shows("Stopped") and outer.prompted())
    outer.type("bg; until jobs | grep -q Stopped; do sleep 0.05; done; clear; echo again\r")
    outer.see("again\r\n")
    outer.type("fg\r")
    outer.wait(lambda: outer.screen.alternate and outer.raw())
    outer.type(":q!\r")
    outer.wait(lambda: outer.prompted() and not outer.screen.alternate)


def test_an_agent_without_a_shell_is_not_left_stopped(wrap: Open) -> None:
    outer = wrap("sh", "-c", "echo up; read line; echo got $line")
    outer.see("up\r\n")
    outer.type("\x1a")
    outer.type("x\r")
    outer.see("got x\r\n")
    assert outer.end() == 0


def test_ctrl_s_stops_the_output_but_not_the_session(wrap: Open, relay: Relay) -> None:
    """The session still answers, and Ctrl-Q resumes the output without loss."""
    program = "import sys\nfor number in range(30_000): print(number, flush=True)"
    outer = wrap("-n", "Held", sys.executable, "-c", program)
    outer.drawing = False
    outer.see("\n100\r\n")
    outer.type("\x13")
    outer.wait(lambda: "Held" in relay("ps").stdout)

    def unchanged() -> bool:
        before = len(outer.output)
        assert "Held" in relay("ps").stdout
        outer.drain()
        return len(outer.output) == before

    outer.wait(unchanged)
    assert b"\n29999\r\n" not in outer.output
    outer.type("\x11")
    assert outer.end() == 0
    assert bytes(outer.output) == b"".join(b"%d\r\n" % number for number in range(30_000))


def test_a_resize_reaches_the_agent(wrap: Open) -> None:
    outer = wrap("sh", "-c", "trap 'stty size' WINCH; stty size; while :; do read line && exit; done")
    outer.see("30 100\r\n")
    outer.resize(90, 25)
    outer.see("25 90\r\n")
    for columns in range(60, 120):
        outer.resize(columns, 35)
    outer.see("35 119\r\n")
    outer.type("\r")
    assert outer.end() == 0


def test_terminals_of_unusual_sizes_work(terminal: Open, wrap: Open) -> None:
    """They work as without relay, whatever the agent does with them."""
    for columns, rows in ((1, 1), (0, 0), (1, 5), (400, 150)):
        size = f"{rows} {columns}"
        # relay learns of a new size with the next keys; of a size of 0 it learns nothing.
        known = f'until [ "$(stty size)" = "{size}" ]; do sleep 0.01; done; ' if columns else ""
        draw = "stty size; printf '\\033[5;5H@relay:x hello\\033[2J\\n'"
        outer = wrap("sh", "-c", f"read line; {known}{draw}")
        outer.resize(columns, rows)
        outer.type("\r")
        started = wrap("sh", "-c", "stty size; printf '\\033[5;5Hx\\033[2J\\n'", columns=columns, rows=rows)
        for each in (outer, started):
            assert each.end() == 0, (columns, rows)
            assert not columns or f"{size}\r\n".encode() in each.output


def test_signals_to_relay_are_passed_on_to_the_agent(relay: Relay, wrap: Open) -> None:
    traps = "; ".join(f"trap 'echo got {name}' {name}" for name in ("USR1", "USR2", "TERM", "INT"))
    # With a limit: bash runs no trap of a signal that arrives just before it blocks in read(2).
    outer = wrap("bash", "-c", f"{traps}; echo up; while :; do read -t 0.2 line && exit 5; done")
    outer.see("up\r\n")
    for name in ("USR1", "USR2", "TERM", "INT"):
        os.kill(outer.pid, signal.Signals[f"SIG{name}"])
        outer.see(f"got {name}\r\n")

    def ended() -> bool:
        outer.type("\r")  # again and again: bash loses a line that comes just as its limit is over
        return outer.ended()

    outer.wait(ended)
    assert outer.end() == 5


def test_sigtstp_sent_to_relay_stops_the_job(shell: Open) -> None:
    outer = shell()
    outer.type("relay wrap sh -c 'echo up; read line; echo got $line'\r")
    outer.see("up\r\n")
    # The foreground job is relay: the agent's job is in another terminal.
    foreground = Path(f"/proc/{outer.pid}/stat").read_text().rpartition(")")[2].split()[5]
    os.killpg(int(foreground), signal.SIGTSTP)
    outer.wait(lambda: outer.shows("Stopped") and outer.prompted())
    outer.type("fg\r")
    outer.see("fg\r\n")
    outer.type("x\r")
    outer.see("got x\r\n")


def test_the_agents_terminal_has_the_modes_of_the_users_terminal(shell: Open) -> None:
    outer = shell()
    # On one line: what is typed while relay runs is for its agent, and lost with it.
    outer.type(
        "stty intr ^A erase ^H -ixon; stty -a > before; relay wrap sh -c 'stty -a > inside'; "
        "diff before inside && echo the sa''me\r"
    )
    outer.see("the same\r\n")


ORPHAN = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.01)
        with open("orphan.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("orphan.new", "orphan")
        os.read(0, 1)
    os._exit(0)
if "waits" in sys.argv:
    os.wait()
print("up", flush=True)
sys.stdin.readline()
sys.exit(5)
"""


@pytest.mark.parametrize("parent", ["waits", "leaves a zombie"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "wrapped"])
def test_a_background_orphan_that_reads_the_terminal_ends(
    terminal: Open, wrap: Open, tmp_path: Path, wrapped: bool, parent: str
) -> None:
    """Nobody could bring it to the foreground; adopted by the shim, it must not stay stopped forever."""
    (tmp_path / "orphan.py").write_text(ORPHAN)
    outer = (wrap if wrapped else terminal)(sys.executable, "orphan.py", parent, cwd=tmp_path)
    outer.see("up\r\n")
    wait_until((tmp_path / "orphan").exists)
    pid = int((tmp_path / "orphan").read_text())

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            return True

    wait_until(ended)
    outer.type("\r")
    assert outer.end() == 5
