"""However an agent, shim or client ends, the terminal is restored and no process is left."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from session.fake_agent import events
from support import LONG, Relay, processes_of, session_patch, wait_until

pytestmark = pytest.mark.own_team

Open = Callable[..., Emulator]

RELAY = (sys.executable, "-m", "relay")

# Sets every mode that could outlive it, and waits.
WILD = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[?1049h\\x1b[?1003h\\x1b[?1006h\\x1b[?2004h")
os.write(1, b"\\x1b[?25l\\x1b[?1h\\x1b=\\x1b[2;5r\\x1b[31mwild")
while True:
    os.read(0, 100)
"""


def _session(relay: Relay, name: str) -> dict[str, int]:
    """Return the session's entry in `relay ps`, once it answers."""

    def look() -> dict[str, int] | None:
        rows = json.loads(relay("ps", "--json").stdout)
        return next((row for row in rows if row["name"] == name and row["id"]), None)

    found = wait_until(look)
    assert found is not None
    return found


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _left(home: Path) -> dict[int, str]:
    """Return the home's processes except brokers."""
    return {pid: command for pid, command in processes_of(home).items() if "nats-server" not in command}


def _wild(wrap: Open, relay: Relay) -> tuple[Emulator, dict[str, int]]:
    outer = wrap("-n", "Wild", sys.executable, "-c", WILD)
    outer.wait_for("wild")
    session = _session(relay, "Wild")
    outer.wait(outer.raw)
    assert outer.screen.alternate
    return outer, session


def test_the_terminal_is_restored_after_the_agent_was_killed(wrap: Open, relay: Relay) -> None:
    outer, session = _wild(wrap, relay)
    os.kill(session["agent_pid"], signal.SIGKILL)
    assert outer.end() == 128 + 9
    assert outer.restored()


def test_the_terminal_is_restored_after_the_shim_was_killed(wrap: Open, relay: Relay, home: Path) -> None:
    """The agent does not stay without a terminal, even if it ignores a hang-up."""
    outer, session = _wild(wrap, relay)
    os.kill(session["terminal_pid"], signal.SIGKILL)
    assert outer.end() == 70
    assert outer.restored()
    assert b"relay ended unexpectedly" in outer.output
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))


def test_an_agent_that_ignores_signals_ends_with_its_killed_shim(
    wrap: Open, relay: Relay, home: Path
) -> None:
    outer = wrap("-n", "Deaf", "sh", "-c", "trap '' HUP TERM INT; echo up; while :; do sleep 1000; done")
    outer.see("up\r\n")
    os.kill(_session(relay, "Deaf")["terminal_pid"], signal.SIGKILL)
    assert outer.end() == 70
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))


def test_the_agent_keeps_running_after_its_client_was_killed(wrap: Open, relay: Relay) -> None:
    outer, session = _wild(wrap, relay)
    os.kill(outer.pid, signal.SIGKILL)
    assert outer.end() == -9
    outer.wait(outer.restored, "the session restores the terminal's modes")
    still = _session(relay, "Wild")
    for changing in ("since", "state", "bus", "held", "waiting", "last_line"):
        del still[changing], session[changing]
    assert still == session


def _through_dev_tty(terminal: Open, *arguments: str) -> Emulator:
    """Run relay with /dev/tty as its input and output, which its shim cannot reopen."""
    return terminal("sh", "-c", f"exec {shlex.join([*RELAY, *arguments])} < /dev/tty > /dev/tty")


def test_a_terminal_that_cannot_be_reopened_is_restored_after_its_client_was_killed(
    terminal: Open, relay: Relay
) -> None:
    outer = _through_dev_tty(terminal, "wrap", "-n", "Wild", sys.executable, "-c", WILD)
    outer.wait_for("wild")
    _session(relay, "Wild")
    outer.wait(outer.raw)
    os.kill(outer.pid, signal.SIGKILL)
    assert outer.end() == -9
    outer.wait(outer.restored, "the session restores the terminal's modes")


def test_an_attached_terminal_is_restored_after_the_shim_was_killed(
    terminal: Open, relay: Relay, home: Path
) -> None:
    relay("wrap", "-d", "-n", "Wild", sys.executable, "-c", WILD)
    outer = terminal(sys.executable, "-m", "relay", "attach", "Wild")
    outer.wait_for("wild")
    os.kill(_session(relay, "Wild")["terminal_pid"], signal.SIGKILL)
    assert outer.end() == 70
    assert outer.restored()
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))


def test_modes_set_before_attaching_are_undone_while_the_agent_is_stopped(
    terminal: Open, relay: Relay
) -> None:
    stops = WILD.replace("os.read(0, 100)", "os.read(0, 100); os.kill(0, 20)")  # SIGTSTP, as from Ctrl-Z
    relay("wrap", "-d", "-n", "Wild", sys.executable, "-c", stops)
    outer = terminal(sys.executable, "-m", "relay", "attach", "Wild")
    outer.wait_for("wild")
    drawn = len(outer.output)
    outer.type("z")
    outer.wait(lambda: b"\x1b[?1049l" in outer.output[drawn:], "its alternate screen is left")
    outer.wait_for("wild")  # this terminal's only job cannot stay stopped


def test_an_attached_terminal_is_restored_after_its_client_was_killed(terminal: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Wild", sys.executable, "-c", WILD)
    outer = terminal(sys.executable, "-m", "relay", "attach", "Wild")
    outer.wait_for("wild")
    outer.wait(lambda: outer.screen.alternate)
    os.kill(outer.pid, signal.SIGKILL)
    outer.end()
    outer.wait(outer.restored)
    _session(relay, "Wild")


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_terminal_that_disappears_ends_the_session(ignoring: bool, wrap: Open, home: Path) -> None:
    """The agent gets a hang-up; one that ignores it finds its terminal gone, as without relay."""
    trap = "trap '' HUP" if ignoring else "trap 'echo hung up > end; exit' HUP"
    outer = wrap("sh", "-c", f"{trap}; echo up; while read line; do :; done; test -e end || echo eof > end")
    outer.see("up\r\n")
    outer.hang_up()
    outer.end()
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))
    assert (home / "end").read_text() == ("eof\n" if ignoring else "hung up\n")


def test_an_attached_terminal_that_disappears_does_not_end_the_session(terminal: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Stays", "cat")
    outer = terminal(sys.executable, "-m", "relay", "attach", "Stays")
    outer.wait(outer.raw)
    outer.hang_up()
    outer.end()
    assert _session(relay, "Stays")


def test_the_crash_of_an_agent_with_conversations_is_told(wrap: Open, relay: Relay) -> None:
    """A plain program's is not: it is as without relay."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "mine.toml").write_text('name = "mine"\n[native]\nhooks = "relay"\n')
    for kind, shown in (("mine", True), ("generic", False)):
        outer = wrap("-n", "Ann", "--agent", kind, "sh", "-c", "echo up; read line; kill -SEGV $$")
        outer.see("up\r\n")
        _session(relay, "Ann")
        outer.type("\r")
        assert outer.end() == 128 + 11
        assert (b"relay: Ann was ended by SIGSEGV.\r\n" in outer.output) == shown


@pytest.mark.parametrize("how", ["closed", "signal", "between", "setting"])
def test_an_agent_with_conversations_outlives_its_terminal(
    how: str, wrap: Open, terminal: Open, relay: Relay
) -> None:
    """The terminal is closed or its client gets SIGHUP, also between two agents; a setting ends the agent."""
    patterns = relay.home / "config" / "patterns"
    patterns.mkdir(parents=True)
    (patterns / "mine.toml").write_text('name = "mine"\n[native]\nhooks = "relay"\n')
    if how == "setting":
        (relay.home / "config" / "relay.toml").write_text('on_hangup = "end"\n')
    script = "trap 'echo hung up > end; exit' HUP; echo up; while read line; do :; done"
    policy = json.dumps({"restart": "always", "backoff": 3600, "backoff_max": 3600})
    command = ("-n", "Stays", "--agent", "mine", "--supervision", policy, "sh", "-c", script)
    outer = wrap(*command)
    outer.see("up\r\n")
    agent = _session(relay, "Stays")["agent_pid"]
    if how == "between":
        os.kill(agent, signal.SIGKILL)
        outer.see("press r to restart it")
    if how == "signal":
        os.kill(outer.pid, signal.SIGHUP)
        outer.see("Stays keeps running; `relay attach Stays` brings it back")
    else:
        outer.hang_up()
    outer.end()
    end = relay.home / "end"
    if how == "setting":
        wait_until(end.exists)
        wait_until(lambda: json.loads(relay("ps", "--json").stdout) == [])
        return

    def told() -> bool:
        return "Its terminal was closed" in relay("inbox", "--json").stdout

    wait_until(told)
    again = terminal(sys.executable, "-m", "relay", "attach", "Stays")
    again.wait_for("press r to restart it" if how == "between" else "up")
    assert not end.exists() and _session(relay, "Stays")["agent_pid"] == agent
    assert [each["what"] for each in events(relay, "terminal_lost")] == ["terminal"]
    wait_until(lambda: not told())


def test_background_processes_end_with_the_agent_but_daemons_do_not(wrap: Open, home: Path) -> None:
    script = (
        "sleep 1001 & nohup sleep 1002 & (trap '' HUP TERM; while :; do sleep 1003; done) & "
        "setsid sh -c 'echo $$ > daemon; exec sleep 1004' & "
        "until test -s daemon; do sleep 0.02; done; echo up; exit 5"
    )
    outer = wrap("bash", "-c", script)
    outer.see("up\r\n")
    assert outer.end() == 5
    daemon = int((home / "daemon").read_text())
    try:
        wait_until(lambda: set(_left(home)) == {daemon}, message=lambda: str(_left(home)))
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_jobs_of_a_wrapped_shell_end_with_it(wrap: Open, home: Path) -> None:
    outer = wrap("bash", "--norc", "-i", env={"PS1": "> "})
    outer.wait_for(">")
    outer.type("sleep 1001 & sleep 1002\r")
    # Its shell puts a job into the foreground before the job executes.
    outer.wait(lambda: "sleep 1002" in processes_of(home).values())
    outer.type("\x1a")
    outer.wait_for("Stopped")
    outer.type("exit\rexit\r")
    outer.end()
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))


@pytest.mark.real_exec
@pytest.mark.parametrize("progress", [*range(0, 32, 8), *range(32, 68, 4)] if LONG else range(0, 68, 16))
def test_a_signal_at_any_moment_of_the_start_leaves_nothing_behind(
    progress: int, wrap: Open, home: Path
) -> None:
    """No terminal stays in raw mode and no process is left, whether relay had started the agent or not.

    Each signal at each moment in `make test-long`, one of them in `make test`.
    """
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    for number in numbers if LONG else (numbers[progress // 4 % 3],):
        outer = wrap("sh", "-c", "echo up; exec sleep 1000")
        # The moment: how much of relay's own code the process has loaded, which grows until it waits.
        wait_until(lambda outer=outer: _progress(outer.pid) >= progress or outer.ended() or outer.raw())
        if not outer.ended():
            os.kill(outer.pid, number)
        # Python drops a Ctrl-C during its own startup, and says so: press it again.
        pressed = 1
        while number == signal.SIGINT and _ignored(outer, pressed):
            os.kill(outer.pid, number)
            pressed += 1
        code = outer.end()
        assert code in {-number, 128 + number, 130, 1}, bytes(outer.output)
        assert outer.modes() == outer.before
    wait_until(lambda: not _left(home), message=lambda: str(_left(home)))


def _ignored(outer: Emulator, times: int) -> bool:
    """Wait until the program ends or reports its `times`-th ignored exception; return True for the latter."""

    def count() -> int:
        return outer.output.count(b"Exception ignored")

    outer.wait(lambda: outer.ended() or count() >= times)
    return not outer.ended() and count() >= times


def _progress(pid: int) -> int:
    """Return a starting process's progress: the pages it has touched, in steps of 256 KB."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
            return -1  # still a copy of pytest
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4 // 256
    except (OSError, IndexError):
        return 1 << 30


def test_a_silent_program_does_not_wait_for_its_session(terminal: Open, relay: Relay) -> None:
    go = relay.home / "go"
    os.mkfifo(go)
    waits = f"open({str(go)!r}).read()\n"
    patient = "import sys\nfrom relay.session import launch\nfrom relay.shim import shim\n"
    patient += "shim.FAREWELL = launch.FIRST_WORDS = 600.0\n"
    wrap = f"{patient}from relay.__main__ import main\nsys.exit(main())"
    alice = terminal(
        sys.executable, "-c", wrap, "wrap", "-n", "Alice", "sh", "-c", "exit 3", env=session_patch(waits)
    )
    assert alice.end() == 3
    go.write_text("")
    wait_until(lambda: any(event["event"] == "session_end" for event in events(relay)))
