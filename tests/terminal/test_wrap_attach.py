"""Detached sessions, and terminals that attach to them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import Emulator

from debian import require
from session.fake_agent import ps
from session.test_session_replaced import entry
from support import Relay, wait_until

pytestmark = pytest.mark.shared_home

Open = Callable[..., Emulator]

DRAW = """
import os, sys, tty
tty.setraw(0)
os.write(1, "\\x1b[?1049h\\x1b[?2004h\\x1b[?1006h\\x1b[H\\x1b[1;31mred é中😀".encode())
os.write(1, b"\\x1b[0m\\x1b[4;7Hgreen \\x1b[42mback\\x1b[0m")
os.write(1, b"\\x1b[6;3Htyped: ")
while True:
    data = os.read(0, 1000)
    os.write(1, b"<" + data.hex().encode() + b">")
"""

# Counts as fast as it can until a line is typed.
COUNT = """
import select, sys
n = 0
while not select.select([0], [], [], 0)[0]:
    sys.stdout.write("".join(f"{i}\\n" for i in range(n, n + 100)))
    sys.stdout.flush()
    n += 100
print("end")
"""

ASKS = (
    sys.executable,
    "-c",
    "import os, tty\ntty.setcbreak(0)\nkeys = b''\nos.write(1, b'\\x1b[c')\nwhile b'q' not in keys:\n"
    "    keys = os.read(0, 99)\n    os.write(1, b'\\x1b[c\\x1b]11;?\\a\\x1b[6n')",
)
"""Always awaits the terminal's answers to its queries; q ends it."""


def _attach(terminal: Open, name: str, *flags: str, **options: int) -> Emulator:
    return terminal(sys.executable, "-m", "relay", "attach", *flags, name, **options)


def test_a_detached_session_is_in_ps_when_wrap_returns(relay: Relay, tmp_path: Path) -> None:
    run = relay("wrap", "-d", "-n", "Ann", "cat", cwd=tmp_path)
    rows = [row for row in ps(relay) if row["name"] == "Ann"]
    assert [row["cwd"] for row in rows] == [str(tmp_path)]
    assert f"Ann is running detached (pid {rows[0]['agent_pid']})." in run.stderr
    assert run.stdout == ""


def test_a_detached_agent_has_a_terminal(relay: Relay, home: Path) -> None:
    script = "{ stty size; tty; echo $RELAY_NAME-$RELAY_TEAM; pwd; } > got; mv got size; cat"
    relay("wrap", "-d", "-n", "Bea", "-t", "Reds", "sh", "-c", script)
    wait_until((home / "size").exists)
    size, tty, name, cwd = (home / "size").read_text().splitlines()
    assert (size, name, cwd) == ("40 120", "Bea-Reds", str(home))
    assert tty.startswith("/dev/")


def test_a_command_that_cannot_be_started_detached_is_reported(relay: Relay, home: Path) -> None:
    (home / "wrong").write_text("#!/no/such/interpreter\n")
    (home / "wrong").chmod(0o755)
    for command, code in (("no-such-command", 127), ("./wrong", 126)):
        run = relay("wrap", "-d", command, check=False)
        assert run.returncode == code
        assert run.stderr.startswith("relay: ")


def test_queries_of_a_detached_agent_are_answered(relay: Relay, home: Path) -> None:
    """Only relay can answer queries for device attributes (CSI c) and the cursor position (CSI 6n)."""
    program = (
        "import os, sys, tty; tty.setraw(0); os.write(1, b'\\x1b[5;9H\\x1b[6n\\x1b[c'); data = b''\n"
        "while not data.endswith(b'c'): data += os.read(0, 100)\n"
        "open('part', 'wb').write(data); os.rename('part', 'answer'); os.read(0, 1)"
    )
    relay("wrap", "-d", sys.executable, "-c", program)
    wait_until((home / "answer").exists)
    answer = (home / "answer").read_bytes()
    assert answer.startswith(b"\x1b[5;9R\x1b[?")


def test_queries_of_an_attached_agent_are_answered_once(wrap: Open) -> None:
    program = (
        "import os, sys, tty; tty.setraw(0); os.write(1, b'\\x1b[6n'); data = os.read(0, 100)\n"
        "while not data.endswith(b'q'): data += os.read(0, 100)\n"
        "os.write(1, b'<' + data.hex().encode() + b'>')"
    )
    outer = wrap(sys.executable, "-c", program)
    outer.see("\x1b[6n")
    outer.type("q")
    outer.see(b"<" + b"\x1b[1;1Rq".hex().encode() + b">")


def test_attaching_shows_the_current_screen(wrap: Open, terminal: Open, relay: Relay) -> None:
    first = wrap("-n", "Draw", sys.executable, "-c", DRAW)
    first.wait_for("typed:")
    wait_until(lambda: "Draw" in relay("ps").stdout)
    first.type("\x1dd")
    assert first.end() == 0
    assert first.restored()
    assert b"relay attach Draw" in first.output
    alone = terminal(sys.executable, "-c", DRAW)
    alone.wait_for("typed:")
    again = _attach(terminal, "Draw")
    again.wait(lambda: again.picture() == alone.picture())
    assert again.screen.bracketed_paste
    again.type("x")
    again.wait_for("<78>")


def test_a_program_attached_later_looks_as_it_does_without_relay(
    terminal: Open, relay: Relay, home: Path
) -> None:
    (home / "text").write_text("".join(f"line {number}\n" for number in range(100)))
    vim = [str(require("vim")), "-u", "NONE", "-i", "NONE", "-n", "text"]
    relay("wrap", "-d", "-n", "Vim", *vim)
    alone = terminal(*vim, columns=120, rows=40)
    alone.wait_for("100 lines")
    alone.resize(90, 24)
    alone.wait(lambda: not alone.shows("100 lines"))
    attached = _attach(terminal, "Vim", columns=90, rows=24)
    attached.wait(lambda: attached.picture() == alone.picture())
    attached.type(":q!\r")
    assert attached.end() == 0
    assert attached.restored()


def test_attaching_during_output_loses_nothing(terminal: Open, relay: Relay) -> None:
    """The repaint and what follows fit together: no number after the first is missing."""
    relay("wrap", "-d", "-n", "Count", sys.executable, "-c", COUNT)
    outer = _attach(terminal, "Count")
    outer.drawing = False
    outer.wait(lambda: len(outer.output) > 100_000)
    outer.type("\r")
    outer.see("end\r\n")
    # The repaint ends with the cursor's position: on a new line, or on one that continues afterwards.
    shown = bytes(outer.output)
    text = re.sub(rb"\x1b\[\d+;1H", b"\n", shown[shown.rindex(b"\x1b[2J") :])
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text)
    numbers = [int(line) for line in text.splitlines() if line.isdigit()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def test_another_terminal_can_take_over(wrap: Open, terminal: Open, relay: Relay) -> None:
    first = wrap("-n", "Taken", sys.executable, "-c", DRAW)
    first.wait_for("typed:")
    wait_until(lambda: "Taken" in relay("ps").stdout)
    refused = _attach(terminal, "Taken")
    assert refused.end() == 1
    assert b"relay attach --takeover Taken" in refused.output
    second = _attach(terminal, "Taken", "--takeover")
    first.see("press Enter to continue")
    assert b"another terminal has attached" in first.output
    first.type("rm -rf everything")  # meant for the agent
    first.type("\r")
    assert first.end() == 0
    assert first.restored()
    assert b"everything" not in first.output
    second.wait_for("typed:")
    others = [_attach(terminal, "Taken", "--takeover") for _ in range(3)]
    for each in (second, *others):
        each.drain()

    def ended(each: Emulator) -> bool:
        each.drain()
        if not each.ended() and b"press Enter" in each.output:
            each.type("\r")
        return each.ended()

    wait_until(lambda: [ended(each) for each in (second, *others)].count(True) == 3)
    last = next(each for each in (second, *others) if not each.ended())
    last.wait_for("typed:")
    last.type("y")
    last.wait_for("<79>")


def test_the_prefix_key_passes_alone_and_detaches_with_d(wrap: Open, relay: Relay) -> None:
    """Ctrl-] alone passes, after a moment or with the next key; twice sends it once; then d detaches."""
    outer = wrap("-n", "Keys", sys.executable, "-c", DRAW)
    outer.wait_for("typed:")
    outer.type("\x1d")
    outer.wait_for("<1d>")
    outer.type("\x1dx")
    outer.wait_for("<1d78>")
    outer.type("\x1d\x1d")
    outer.wait_for("<1d><1d78><1d>")
    wait_until(lambda: "Keys" in relay("ps").stdout)
    outer.type("\x1dd")
    assert outer.end() == 0
    assert outer.restored()
    assert "Keys" in relay("ps").stdout


def test_detaching_leaves_the_drawing_intact(wrap: Open, relay: Relay) -> None:
    """An agent that draws next to the shell's lines has its cursor in the middle."""
    draw = r"stty raw -echo; printf 'top\r\n> \r\nfoot\033[A\033[3G'; sleep 60"
    terminal = wrap("-n", "Drawn", "sh", "-c", draw)
    terminal.wait_for("foot")
    wait_until(
        lambda: (
            json.loads(relay("explain", "Drawn", "--json", check=False).stdout or "{}").get("reader")
            == "screen"
        )
    )
    terminal.type("\x1dd")
    assert terminal.end() == 0
    assert terminal.lines()[:4] == [
        "top",
        ">",
        "foot",
        "relay: Drawn keeps running; `relay attach Drawn` brings it back",
    ]


def test_keys_after_detaching_go_to_the_shell(shell: Open, relay: Relay) -> None:
    outer = shell()
    outer.type("relay wrap -n Cat cat\r")
    outer.wait(outer.raw)
    wait_until(lambda: "Cat" in relay("ps").stdout)
    outer.type("\x1dd")
    outer.wait(outer.prompted)
    outer.type("echo back''again\r")
    outer.see("backagain\r\n")
    outer.type("relay attach Cat\r")
    outer.wait(lambda: outer.raw() and not outer.screen.bracketed_paste)
    outer.type("hello\r")
    outer.see("hello\r\nhello\r\n")
    outer.type("\x04")
    outer.wait(outer.prompted)


@pytest.mark.parametrize("way", ["detach", "end", "stop", "death"])
def test_answers_on_their_way_are_not_typed_at_the_shell(way: str, shell: Open, relay: Relay) -> None:
    alice = shell()
    alice.type(f"relay wrap -n {way} {shlex.join(ASKS)}\r")
    alice.wait(lambda: alice.output.count(b"\x1b]11;?\a") > 2, "it asks again and again")
    if way == "death":
        os.kill(entry(relay, way)["terminal_pid"], signal.SIGKILL)
    else:
        alice.type({"detach": b"\x1dd", "end": b"q", "stop": b"\x1a"}[way])
    alice.wait(alice.prompted)
    alice.type("echo on''ly this\r")
    alice.wait_for("only this")
    text = "\n".join(alice.lines())
    assert "rgb" not in text and ";1R" not in text and "?6" not in text, text
    if way == "stop":
        alice.type("kill %1; wait\r")
        alice.wait(alice.prompted)
    elif way == "detach":
        relay("stop", "--now", way)  # it would ask for ever


def test_an_attached_terminal_gets_the_exit_code(terminal: Open, relay: Relay) -> None:
    relay("wrap", "-d", "-n", "Ends", "sh", "-c", "echo up; read line; exit 9")
    outer = _attach(terminal, "Ends")
    outer.wait_for("up")
    outer.type("\r")
    assert outer.end() == 9
    assert outer.modes() == outer.before


def test_attaching_needs_a_terminal_and_a_session(relay: Relay, terminal: Open) -> None:
    assert "needs a terminal" in relay("attach", "Nobody", check=False).stderr
    outer = _attach(terminal, "Nobody")
    assert outer.end() == 1
    assert b"there is no session called 'Nobody'" in outer.output
    assert outer.modes() == outer.before


def test_a_detached_agent_that_stops_is_continued(relay: Relay, home: Path) -> None:
    """Without a terminal, nobody could continue it."""
    relay("wrap", "-d", "-n", "Halt", "sh", "-c", "kill -STOP $$; echo on > on; cat")
    wait_until((home / "on").exists)


def test_output_is_read_while_detached(relay: Relay, home: Path, terminal: Open) -> None:
    data = bytes(byte for byte in os.urandom(1_000_000) if 0x20 <= byte < 0x7F)  # no queries
    (home / "data").write_bytes(data)
    relay(
        "wrap",
        "-d",
        "-n",
        "Loud",
        "sh",
        "-c",
        "cat data; sha256sum data > part; mv part done; printf '\\033c'end; cat",
    )
    wait_until((home / "done").exists)
    assert (home / "done").read_text().startswith(hashlib.sha256(data).hexdigest())
    outer = _attach(terminal, "Loud")
    outer.wait_for("end")


@pytest.mark.parametrize("drawing", [False, True])
def test_scrolled_rows_are_in_the_terminals_own_history(drawing: bool, terminal: Open, relay: Relay) -> None:
    """U6: at least the last 2,000 lines are above the screen, each once."""
    name, draws = ("Drawing", "printf '\\033[2J\\033[H'; ") if drawing else ("Plain", "")
    relay("wrap", "-d", "-n", name, "sh", "-c", f"{draws}seq 1 2500; echo over; cat")
    wait_until(lambda: entry(relay, name)["state"] == "ready")
    outer = _attach(terminal, name)
    outer.wait_for("over")
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"\n", bytes(outer.output))
    before = text[: text.index(b"over")] if not drawing else text
    numbers = [int(line) for line in before.split() if line.isdigit()]
    history = numbers[: numbers.index(max(numbers)) + 1]
    assert set(range(520, 2400)) <= set(history)
    assert history == sorted(history)
