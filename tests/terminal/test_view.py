"""Terminals that view an agent while another one controls it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulator import Emulator

from session.fake_agent import ps
from support import LONG, Relay, processes_of, wait_until

Open = Callable[..., Emulator]

ECHO = """
import os, tty
tty.setraw(0)
os.write(1, b"up\\r\\n")
while True:
    data = os.read(0, 1000)
    os.write(1, b"<" + data.hex().encode() + b">")
"""

QUERIES = (
    b"\x1b[c\x1b[>c\x1b[=c\x1bZ\x1b[5n\x1b[6n\x1b[?6n\x1b[?2004$p\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]4;1;?\x07"
    b"\x1b[>q\x1bP+q544e\x1b\\\x1bP$q q\x1b\\\x1b[?u\x1b_Gi=1,a=q;AAAA\x1b\\\x1b[14t\x1b[21t\x1b]52;c;?\x07"
)
"""Device attributes, status, modes, colours, XTGETTCAP, DECRQSS, keyboard, graphics, window, clipboard."""

PAINT = re.compile(
    rb"\x1b\[[0-9;:]*m|\x1b\[[0-9]+;[0-9]+H|\x1b\[[KJH]|\x1b\[2J|\x1b\[\?(?:25|7|1049)[hl]|[\r\n]"
)
"""Everything that a viewer may write besides text."""


@pytest.fixture
def relay(shared: Relay) -> Relay:
    """Return the module's home: each test has an agent of its own."""
    return shared


@pytest.fixture
def view(terminal: Open) -> Open:
    """Return a factory: `view("Alice")` runs `relay attach --view Alice` in an emulator."""
    return lambda name, **options: terminal(
        sys.executable, "-m", "relay", "attach", "--view", name, **options
    )


def _session(relay: Relay, name: str) -> dict[str, Any]:
    """Return the agent's entry in `relay ps`, once its session answers."""

    def answers() -> list[dict[str, Any]]:
        return [row for row in ps(relay) if row["name"] == name and row["state"] != "unresponsive"]

    return wait_until(answers)[0]


def _replaced(relay: Relay, before: dict[str, Any]) -> dict[str, Any]:
    name, pid = before["name"], before["session_pid"]
    return wait_until(lambda: (row := _session(relay, name))["session_pid"] != pid and row)


def _look_alike(viewer: Emulator, owner: Emulator) -> None:
    """Wait until the viewer shows the first lines of its owner."""
    viewer.wait(lambda: viewer.lines()[:2] == owner.lines()[:2])


def test_two_terminals_view_beside_the_one_that_controls(wrap: Open, view: Open, relay: Relay) -> None:
    """All show the same; only the controlling terminal's keys and size reach the agent."""
    owner = wrap("-n", "Ann", sys.executable, "-c", ECHO)
    owner.wait_for("up")
    _session(relay, "Ann")
    viewers = [view("Ann"), view("Ann", columns=60, rows=12)]
    for viewer in viewers:
        viewer.wait_for("up")
    wait_until(lambda: _session(relay, "Ann")["viewers"] == 2)
    viewers[0].type("nobody reads this\x1a")
    viewers[1].type("\x1b[A\x1b[<0;1;1M\r")
    owner.type("a")
    for each in (owner, *viewers):
        each.wait_for("<61>")
    assert [each for each in owner.lines() if each] == ["up", "<61>"]
    for viewer, keys in zip(viewers, ("q", "\x1dd"), strict=True):
        viewer.type(keys)
        assert viewer.end() == 0
        assert viewer.restored()
        assert b"relay: Ann keeps running." in viewer.output
    owner.type("b")
    owner.wait_for("<62>")
    wait_until(lambda: _session(relay, "Ann")["viewers"] == 0)


def test_a_detached_agent_can_be_viewed_and_then_attached(terminal: Open, view: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Bea", sys.executable, "-c", ECHO)
    viewer = view("Bea")
    viewer.wait_for("up")
    viewer.wait_for("cut to 100x30")
    owner = terminal(sys.executable, "-m", "relay", "attach", "Bea", columns=90, rows=20)
    owner.wait_for("up")
    owner.type("a")
    viewer.wait_for("<61>")
    assert _session(relay, "Bea")["viewers"] == 1


def test_a_viewer_gets_the_history(view: Open, relay: Relay) -> None:
    """The last 2,000 lines are in its terminal's scrollback, each once, in order, and in colour."""
    relay(
        "wrap",
        "-d",
        "-n",
        "Long",
        "sh",
        "-c",
        r"seq 1 2500; printf '\033[31mover\033[0m\n'; read a; seq 3001 3100; cat",
    )
    wait_until(lambda: _session(relay, "Long")["state"] == "ready")
    viewer = view("Long")
    viewer.wait_for("over")
    assert b"viewing Long; what you type goes nowhere" in viewer.output
    assert _history(viewer, 520, 2400) == list(range(520, 2401))


def _history(viewer: Emulator, first: int, last: int) -> list[int]:
    """Return the numbers from `first` to `last` that the viewer wrote, without repaints of the same rows."""
    found: list[int] = []
    for number in map(int, re.findall(rb"\x1b\[K(\d+)\x1b\[0m", bytes(viewer.output))):
        if first <= number <= last and (not found or number > found[-1]):
            found.append(number)
    return found


def test_rows_that_scroll_off_while_viewed_are_in_the_history(wrap: Open, view: Open, relay: Relay) -> None:
    owner = wrap("-n", "Cleo", "sh", "-c", "echo up; read a; seq 1 200; echo over; cat")
    owner.wait_for("up")
    _session(relay, "Cleo")
    viewer = view("Cleo")
    viewer.screen.collect()
    viewer.wait_for("up")
    owner.type("\r")
    owner.wait_for("over")
    viewer.wait_for("over")
    shown = [*viewer.screen.history, *viewer.lines()]
    numbers = [int(line) for line in shown if line.isdigit()]
    assert numbers == list(range(1, 201))


def test_a_viewer_sees_the_agents_screen(wrap: Open, view: Open, relay: Relay) -> None:
    """That includes its alternate screen; afterwards the primary one is as before."""
    draw = (
        "import sys; print('below')\n"
        "sys.stdout.write('\\x1b[?1049h\\x1b[?1006h\\x1b[5;9H\\x1b[31mred \\u65e5\\u672c')\n"
        "sys.stdout.flush(); input(); sys.stdout.write('\\x1b[?1049l\\x1b[?1006l'); print('after'); input()"
    )
    owner = wrap("-n", "Dora", sys.executable, "-c", draw)
    owner.wait_for("red")
    _session(relay, "Dora")
    viewer = view("Dora", rows=32)
    viewer.wait_for("red 日本")
    viewer.wait(lambda: viewer.screen.alternate and viewer.lines()[:5] == owner.lines()[:5])
    assert viewer.screen.colours(8, 4) == owner.screen.colours(8, 4)
    assert not viewer.screen.mode(1006)
    owner.type("\r")
    viewer.wait(lambda: viewer.shows("after") and not viewer.screen.alternate)
    owner.type("\r")
    assert owner.end() == 0
    assert viewer.end() == 0
    assert viewer.restored()


def test_the_history_below_a_full_screen_program_is_shown(wrap: Open, terminal: Open, relay: Relay) -> None:
    """What scrolled off before the program started is in the terminal's scrollback."""
    full = r"seq 1 300; printf '\033[?1049h\033[Hfull'; read a; printf '\033[?1049l'; cat"
    owner = wrap("-n", "Eve", "sh", "-c", full)
    owner.wait_for("full")
    _session(relay, "Eve")
    for flag in ("--view", "--takeover"):
        other = terminal(sys.executable, "-m", "relay", "attach", flag, "Eve")
        other.wait_for("full")
        assert other.screen.alternate
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b" ", bytes(other.output))
        numbers = [int(word) for word in text.split() if word.isdigit()]
        assert numbers[:240] == list(range(1, 241)), flag


def test_queries_and_modes_never_reach_a_viewers_terminal(wrap: Open, view: Open, relay: Relay) -> None:
    """So the terminal has nothing to answer, and nothing spills into the user's shell."""
    program = (
        "import os, tty; os.write(1, b'up\\r\\n'); os.read(0, 9); tty.setraw(0)\n"
        f"os.write(1, {QUERIES!r} + "
        "b'\\x1b[?1000;1003;1006;2004h\\x1b]0;owned\\x07\\x1b]52;c;aGk=\\x07\\x1b[>31uasked\\r\\n')\n"
        "while True: os.read(0, 99)"
    )
    owner = wrap("-n", "Fay", sys.executable, "-c", program)
    owner.wait_for("up")
    _session(relay, "Fay")
    viewer = view("Fay")
    viewer.wait_for("up")
    owner.type("\r")
    owner.wait_for("asked")
    viewer.wait_for("asked")
    viewer.type("q")
    assert viewer.end() == 0
    assert viewer.restored() and viewer.screen.title == ""
    assert not re.search(rb"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]", PAINT.sub(b"", bytes(viewer.output)))


def test_input_without_echo_is_not_sent_to_viewers(wrap: Open, view: Open, relay: Relay) -> None:
    owner = wrap("-n", "Gus", "sh", "-c", "stty -echo; echo password; read a; stty echo; echo got ${#a}; cat")
    owner.wait_for("password")
    _session(relay, "Gus")
    viewer = view("Gus")
    viewer.wait_for("password")
    owner.type("hunter2\r")
    viewer.wait_for("got 7")
    assert b"hunter2" not in viewer.output


def test_a_viewer_stays_when_the_session_is_replaced(
    wrap: Open, view: Open, relay: Relay, subtests: pytest.Subtests
) -> None:
    owner = wrap("-n", "Hal", sys.executable, "-c", ECHO)
    owner.wait_for("up")
    for way, key in (("kill", "a"), ("reload", "b"), ("stop", "c")):
        with subtests.test(way):
            before = _session(relay, "Hal")
            viewers = [view("Hal"), view("Hal", columns=50)]
            for viewer in viewers:
                viewer.wait_for("up")
            if way == "kill":
                os.kill(before["session_pid"], signal.SIGKILL)
            else:
                if way == "stop":
                    os.kill(before["session_pid"], signal.SIGSTOP)
                    owner.type("z")
                    owner.wait_for("<7a>")
                relay("reload", "Hal")
            after = _replaced(relay, before)
            assert after["agent_pid"] == before["agent_pid"]
            wait_until(lambda: _session(relay, "Hal")["viewers"] == 2)
            owner.type(key)
            for each in (owner, *viewers):
                each.wait_for(f"<{ord(key):x}>")
            _look_alike(viewers[0], owner)
            for viewer in viewers:
                viewer.type("\x03")
                assert viewer.end() == 0
                assert viewer.restored()


def test_a_viewer_waits_for_a_session(wrap: Open, view: Open, relay: Relay) -> None:
    """A viewer that attaches while the session is stopped also waits, and reports no error."""
    owner = wrap("-n", "Ida", sys.executable, "-c", ECHO)
    owner.wait_for("up")
    before = _session(relay, "Ida")
    os.kill(before["session_pid"], signal.SIGSTOP)
    impatient, viewer = view("Ida"), view("Ida")
    for each in (impatient, viewer):
        each.see("viewing Ida;")
    impatient.wait(impatient.raw)
    impatient.type("q")
    assert impatient.end() == 0
    os.kill(before["session_pid"], signal.SIGCONT)
    viewer.wait_for("up")


@pytest.mark.parametrize("command, code", [("exit 7", 7), ("kill -9 $$", 137)])
def test_the_end_of_the_agent_is_reported_to_a_viewer(
    command: str, code: int, wrap: Open, view: Open, relay: Relay
) -> None:
    name = f"Jo{code}"
    owner = wrap("-n", name, "sh", "-c", f"echo up; read a; echo last words; {command}")
    owner.wait_for("up")
    _session(relay, name)
    viewer = view(name)
    viewer.wait_for("up")
    owner.type("\r")
    assert owner.end() == code
    assert viewer.end() == code
    assert viewer.restored()
    assert viewer.shows("last words")
    assert f"relay: {name} has ended with exit code {code}." in viewer.lines()


def test_the_end_of_the_agent_is_reported_even_without_its_session(
    wrap: Open, view: Open, relay: Relay
) -> None:
    """The next session reports the exit code."""
    owner = wrap("-n", "Kim", "sh", "-c", "echo up; read a; exit 5")
    owner.wait_for("up")
    before = _session(relay, "Kim")
    viewer = view("Kim")
    viewer.wait_for("up")
    os.kill(before["session_pid"], signal.SIGSTOP)
    owner.type("\r")
    wait_until(lambda: before["agent_pid"] not in processes_of(relay.home))
    os.kill(before["session_pid"], signal.SIGKILL)
    assert owner.end() == 5
    assert viewer.end() in {5, 70}  # the last session may have gone before it was asked
    assert viewer.restored()
    assert b"relay: Kim has ended" in viewer.output


def test_a_viewer_ends_when_the_shim_is_killed(wrap: Open, view: Open, relay: Relay) -> None:
    owner = wrap("-n", "Leo", sys.executable, "-c", ECHO)
    owner.wait_for("up")
    session = _session(relay, "Leo")
    viewer = view("Leo")
    viewer.wait_for("up")
    os.kill(session["terminal_pid"], signal.SIGKILL)
    assert viewer.end() == 70
    assert viewer.restored()
    assert b"relay: Leo has ended.\r\n" in viewer.output


@pytest.mark.parametrize("alternate", [False, True])
def test_the_terminal_of_a_killed_viewer_is_restored(
    alternate: bool, view: Open, relay: Relay, subtests: pytest.Subtests
) -> None:
    name, enter = ("Max", r"printf '\033[?1049h'; ") if alternate else ("Min", "")
    relay("wrap", "-d", "-n", name, "sh", "-c", f"{enter}echo up; cat")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
        with subtests.test(number.name):
            viewer = view(name)
            viewer.wait_for("up")
            assert viewer.screen.alternate == alternate
            os.kill(viewer.pid, number)
            assert viewer.end() == (-number if number == signal.SIGKILL else 128 + number)
            viewer.wait(viewer.restored)
            assert viewer.screen.mode(7)  # lines wrap again
            assert _session(relay, name)["name"] == name


TWO_RUNS = (
    "[ -e life ] && n=2 || n=1; touch life; [ $n = 1 ] && seq 1 40; echo life $n; "
    "[ $n = 1 ] && read a && printf '\\033[?1049h\\033[Hfull\n'; "
    'while read line; do echo "$n got $line"; [ "$line" = end ] && exit 7; done'
)
"""The first run ends on the alternate screen."""


def test_a_viewer_stays_when_the_agent_is_restarted(wrap: Open, view: Open, relay: Relay) -> None:
    """It gets a notice, keeps the first run's output, and exits with the last exit code."""
    owner = wrap("-n", "Nia", "sh", "-c", TWO_RUNS)
    owner.wait_for("life 1")
    _session(relay, "Nia")
    viewer, stopped = view("Nia"), view("Nia")
    for each in (viewer, stopped):
        each.wait_for("life 1")
    owner.type("\r")
    for each in (viewer, stopped):
        each.wait_for("full")
    os.kill(stopped.pid, signal.SIGSTOP)
    relay("restart", "Nia")
    viewer.wait_for("life 2")
    os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: _session(relay, "Nia")["viewers"] == 2)
    owner.type("hello\r")
    for each in (viewer, stopped):
        each.wait_for("2 got hello")
        assert not each.screen.alternate and not each.shows("full")
        end = each.output.index(b"[relay: the agent has ended; its next run follows]")
        assert each.output.rindex(b"40", 0, end) < end < each.output.index(b"life 2")
        assert b"Nia has ended" not in each.output
    owner.type("end\r")
    assert [each.end() for each in (owner, viewer, stopped)] == [7, 7, 7]
    assert viewer.restored()


def test_a_restart_that_fails_is_reported_to_a_viewer(
    wrap: Open, view: Open, relay: Relay, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    command = "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done"
    owner = wrap("-n", "Oto", "sh", "-c", command, cwd=tmp_path / "project")
    owner.wait_for("up")
    _session(relay, "Oto")
    viewer = view("Oto")
    viewer.wait_for("up")
    (tmp_path / "project").rmdir()
    assert relay("restart", "Oto", check=False).returncode == 1
    assert viewer.end() == 9
    assert b"relay: Oto has ended with exit code 9." in viewer.output


def test_another_agent_with_the_same_name_is_not_viewed(view: Open, relay: Relay) -> None:
    """Another `relay wrap` has started it while the viewer was stopped."""
    relay("wrap", "-d", "-n", "Pia", "sh", "-c", "echo first; cat")
    viewer = view("Pia")
    viewer.wait_for("first")
    os.kill(viewer.pid, signal.SIGSTOP)
    os.kill(_session(relay, "Pia")["terminal_pid"], signal.SIGKILL)
    wait_until(lambda: "Pia" not in relay("ps").stdout)
    relay("wrap", "-d", "-n", "Pia", "sh", "-c", "echo second; cat")
    _session(relay, "Pia")
    os.kill(viewer.pid, signal.SIGCONT)
    viewer.end()
    assert b"relay: Pia has ended" in viewer.output
    assert b"second" not in viewer.output


def test_a_slow_viewer_delays_nothing_and_sees_the_end(view: Open, relay: Relay, tmp_path: Path) -> None:
    """The viewer reads nothing while the agent writes 30 MB, or 60; the session buffers little of that."""
    os.mkfifo(tmp_path / "go")
    flood = "import os, sys\nprint('up', flush=True)\nopen('go').read()\n"
    flood += (
        f"for n in range({60 if LONG else 30}): sys.stdout.write('\\u2588 a line of the log\\n' * 45_000)\n"
    )
    flood += "print('over', flush=True); open('done', 'w').close(); input()"
    relay("wrap", "-d", "-n", "Quinn", sys.executable, "-c", flood, cwd=tmp_path)
    before = _session(relay, "Quinn")
    viewers = [view("Quinn"), view("Quinn")]
    for viewer in viewers:
        viewer.wait_for("up")
    memory = _resident(before["session_pid"])
    (tmp_path / "go").write_text("")
    wait_until((tmp_path / "done").exists, timeout=60)
    wait_until(lambda: _session(relay, "Quinn")["viewers"] == 2)
    assert _resident(before["session_pid"]) - memory < 45_000_000
    for viewer in viewers:
        viewer.wait_for("over")
        assert b"of output skipped" in viewer.output
    assert _session(relay, "Quinn")["session_pid"] == before["session_pid"]


def test_a_stopped_viewer_delays_nothing_and_catches_up(wrap: Open, view: Open, relay: Relay) -> None:
    """The agent writes 2 MB meanwhile, more than the session keeps for a viewer."""
    flood = "import sys\nprint('up', flush=True)\ninput()\n"
    flood += "for n in range(20): sys.stdout.write((str(n) + 'x' * 1000 + '\\n') * 100)\n"
    flood += "print('over', flush=True); input(); print('said'); input()"
    owner = wrap("-n", "Ria", sys.executable, "-c", flood)
    owner.wait_for("up")
    before = _session(relay, "Ria")
    stopped, other = view("Ria"), view("Ria")
    for viewer in (stopped, other):
        viewer.wait_for("up")
    os.kill(stopped.pid, signal.SIGSTOP)
    owner.type("\r")
    for each in (owner, other):
        each.wait_for("over")
    owner.type("\r")
    for each in (owner, other):
        each.wait_for("said")
    after = _session(relay, "Ria")
    assert (after["session_pid"], after["viewers"]) == (before["session_pid"], 2)
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.wait_for("said")
    assert b"of output skipped" in stopped.output
    owner.type("\r")
    assert [each.end() for each in (owner, other, stopped)] == [0, 0, 0]


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_viewers_terminal_can_be_resized(wrap: Open, view: Open, relay: Relay) -> None:
    """So does the agent's terminal. What fits is shown, and always the line with the cursor."""
    program = (
        "import os, signal, tty; tty.setraw(0)\n"
        "def draw(*_):\n"
        "    w, h = os.get_terminal_size(0)\n"
        "    rows = [b'row %d %dx%d' % (y, w, h) for y in range(h)]\n"
        "    os.write(1, b'\\x1b[2J\\x1b[H' + b'\\r\\n'.join(rows))\n"
        "signal.signal(signal.SIGWINCH, draw); draw()\n"
        "os.read(0, 1)\nos.write(1, b'\\x1b[2;1H')\nos.read(0, 1)\nos.write(1, b'x' * 75)\nos.read(0, 1)"
    )
    owner = wrap("-n", "Sam", sys.executable, "-c", program)
    owner.wait_for("row 29 100x30")
    _session(relay, "Sam")
    viewer = view("Sam", columns=12, rows=10)
    viewer.wait_for("row 29 100x3")
    viewer.wait(lambda: viewer.lines()[:1] == ["row 20 100x3"])
    viewer.resize(40, 20)
    os.kill(viewer.pid, signal.SIGWINCH)
    viewer.wait(lambda: viewer.lines()[:1] == ["row 10 100x30"])
    assert owner.shows("row 29 100x30")
    owner.type("x")
    viewer.wait(lambda: viewer.lines()[:1] == ["row 1 100x30"])
    owner.resize(70, 15)
    os.kill(owner.pid, signal.SIGWINCH)
    for each in (owner, viewer):
        each.wait_for("row 14 70x15")
    viewer.resize(90, 20)
    os.kill(viewer.pid, signal.SIGWINCH)
    owner.type("y")
    owner.wait_for("x" * 17)
    viewer.wait(lambda: viewer.lines()[:15] == owner.lines(), "it wraps where the agent's terminal does")


def test_an_agent_may_not_view(relay: Relay, terminal: Open) -> None:
    """Nor may an agent attach: neither by the command nor by the socket."""
    relay("wrap", "-d", "-n", "Bob", "sh", "-c", "echo secret; cat")
    ask = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['RELAY_SOCKET'].replace("
        "'tom', 'bob')); s.sendall(b'{\"op\": \"view\"}\\n'); open('part', 'wb').write(s.recv(4096)); "
        "os.rename('part', 'answer')"
    )
    (relay.home / "ask.py").write_text(ask)
    view = f"{sys.executable} -m relay attach --view Bob"
    command = f"{sys.executable} ask.py; {view} 2> refused; mv refused done; cat"
    relay("wrap", "-d", "-n", "Tom", "sh", "-c", command)
    wait_until((relay.home / "done").exists)
    assert "an agent may not request 'view'" in (relay.home / "answer").read_text()
    assert "inside a relay session" in (relay.home / "done").read_text()


def test_viewing_needs_a_terminal_and_an_agent(relay: Relay, view: Open) -> None:
    assert "needs a terminal" in relay("attach", "--view", "Nobody", check=False).stderr
    assert "not allowed with" in relay("attach", "--view", "--takeover", "Nobody", check=False).stderr
    viewer = view("Nobody")
    assert viewer.end() == 1
    assert b"there is no session called 'Nobody'" in viewer.output
    assert viewer.modes() == viewer.before


def test_a_viewer_can_be_suspended_and_resumed(shell: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Uma", "sh", "-c", "echo up; cat")
    outer = shell()
    outer.type("relay attach --view Uma\r")
    outer.wait_for("up")
    outer.wait(outer.raw)
    outer.type("\x1a")
    outer.see("Stopped")
    outer.wait(outer.prompted)
    outer.type("fg\r")
    outer.wait(lambda: outer.lines()[:1] == ["up"])
    outer.type("q")
    outer.wait(outer.prompted)
    outer.type("echo still''here\r")
    outer.see("stillhere\r\n")
