"""`relay replay` in a user's terminal: what it shows, what keys do, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal

import pytest

from relay.terminal.canvas import ENTER, LEAVE, names
from replay.casts import said, session
from replay.conftest import Replay, Shell
from support import Relay, processes_of

STILL = [(0.0, "o", "first\r\n"), (1000.0, "o", "second\r\n"), (2000.0, "o", "third\r\n")]
"""With --idle 1000, no later line appears by itself during a test."""

PAINT = re.compile(rb"\x1b\[[0-9;:]*m|\x1b\[[0-9]+;[0-9]+H|\x1b\[K|\x1b\[2J|\x1b\[\?25[hl]")
"""Everything other than text that may be written between ENTER and LEAVE."""

HOSTILE = {
    "clipboard": "\x1b]52;c;aGk=\x07",
    "title": "\x1b]0;owned\x07\x1b]2;owned\x1b\\\x1b[22;2t",
    "notification": "\x1b]9;owned\x07\x1b]777;notify;a;owned\x07\x1b]99;;owned\x1b\\",
    "device attributes": "\x1b[c\x1b[>c\x1b[=c\x1bZ",
    "status": "\x1b[5n\x1b[6n\x1b[?6n",
    "mode query": "\x1b[?2004$p\x1b[4$p",
    "colour query": "\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]4;1;?\x07",
    "version": "\x1b[>q\x1bP+q544e\x1b\\\x1bP$qm\x1b\\",
    "kitty keyboard": "\x1b[?u\x1b[>31u\x1b_Gi=1,a=q;AAAA\x1b\\",
    "status report query": "\x1b]7501;?\x1b\\",
    "modes": "\x1b[?1000;1002;1003;1004;1006;2004;2026;9h",
    "keypad": "\x1b=\x1b[?1h\x1b[?66h",
    "printing": "\x1b[5i\x1b[4i\x1b[?5i",
    "reset": "\x1bc\x1b[!p",
    "charset": "\x0e\x1b(0\x1b)0\x1bn\x1b%@",
    "window": "\x1b[3;0;0t\x1b[14t\x1b[21t\x1b[8;5;5t",
    "strings": "\x1bPowned\x1b\\\x1b_owned\x1b\\\x1b^owned\x1b\\\x1bXowned\x1b\\",
    "hyperlink": "\x1b]8;;javascript:owned\x07click\x1b]8;;\x07",
    "palette": "\x1b]4;1;rgb:ff/00/00\x07\x1b]10;red\x07\x1b]104\x07",
    "cursor": "\x1b[5 q\x1b[?12h\x1b[?25l",
    "C1": "\x9b5n\x9d0;owned\x9c\x90owned\x9c",
    "bell": "\x07\x07",
    "direction": "\u202eowned\u2066",
    "current directory": "\x1b]7;file://host/owned\x07\x1b]133;A\x07\x1b]1337;SetMark\x07",
    "cut off": "\x1b]52;c;",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_recording_paints_text_and_does_nothing_else(content: str, relay: Relay, replay: Replay) -> None:
    entry = {"event": "notice", "text": f"note {content} end", "at": 0.0, "name": content}
    session(
        relay.home,
        "Alice",
        (0.0, "o", f"before {content}"),
        (0.0, "o", "\x07\x1b\\\r\nafter"),
        entries=[entry],
    )
    e = replay("Alice", "--events")
    e.wait_for("after")
    e.type("q")
    assert e.end() == 0
    output = bytes(e.output)
    assert output.startswith(ENTER) and output.endswith(LEAVE)
    text = PAINT.sub(b"", output[len(ENTER) : -len(LEAVE)]).decode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), repr(text)
    assert e.restored()


def test_replay_uses_the_alternate_screen_and_leaves_no_trace(relay: Relay, replay: Replay) -> None:
    session(relay.home, "Alice", *said("one", "two", "three", every=0.05))
    e = replay("alice")
    e.wait_for("three")
    e.wait_for("end 0:00/0:00")
    assert e.screen.alternate and e.raw()
    assert e.lines()[-1].startswith(" end 0:00/0:00  1x  Alice  40x8")
    e.type("q")
    assert e.end() == 0
    assert e.restored()
    assert e.lines() == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_restores_the_terminal(number: int, code: int, relay: Relay, replay: Replay) -> None:
    session(relay.home, "Alice", *STILL)
    e = replay("Alice", "--idle", "1000")
    e.wait_for("first")
    os.kill(e.pid, number)
    assert e.end() == code
    assert e.restored()


def test_ctrl_c_restores_the_terminal(relay: Relay, replay: Replay) -> None:
    session(relay.home, "Alice", *STILL)
    e = replay("Alice", "--idle", "1000")
    e.wait_for("first")
    e.type("\x03")
    assert e.end() == 130
    assert e.restored()


def test_a_crash_restores_the_terminal(relay: Relay, replay: Replay) -> None:
    path = session(relay.home, "Alice", *STILL)
    e = replay("Alice", "--idle", "1000")
    e.wait_for("first")
    path.unlink()
    e.type("\x1b[C\x1b[D")  # going back reopens the file
    assert e.end() == 1
    assert e.restored()
    assert "cannot read" in "".join(e.lines())


def test_a_closed_window_ends_the_replay(relay: Relay, replay: Replay) -> None:
    session(relay.home, "Alice", *STILL)
    e = replay("Alice", "--idle", "1000")
    e.wait_for("first")
    e.hang_up()
    assert e.end() in {129, -signal.SIGHUP}


def test_keys_control_the_playback(relay: Relay, replay: Replay) -> None:
    session(relay.home, "Alice", *STILL, entries=[{"event": "notice", "text": "look", "at": 1500.0}])
    e = replay("Alice", "--idle", "1000", "--events", "--at", "16:38", "--speed", "0.1")
    e.wait_for("playing 16:3")
    assert not e.shows("second")
    e.type(" ")
    e.wait_for("paused 16:3")
    e.type("\x1b[C")
    e.wait_for("second")
    e.wait_for("paused 16:4")
    e.type("\x1bOD")
    e.wait(lambda: not e.shows("second"), "back to before the second line")
    e.type("+")
    e.wait_for("0.2x")
    e.type("]")
    e.wait_for("25:00  notice")
    e.type("/THIR")
    e.wait_for("/THIR")
    e.type("\x7fR\r")
    e.wait_for("end 33:20")
    e.wait_for("third")
    e.type("N")
    e.wait_for("nothing earlier")
    e.type("q")
    assert e.end() == 0
    assert e.restored()


def test_a_recording_larger_than_the_terminal_is_cut_off_and_marked(relay: Relay, replay: Replay) -> None:
    wide = f"\x1b[1;1Htop\x1b[39;1H{'x' * 99}|\x1b[40;1Hlast row"
    session(relay.home, "Alice", (0.0, "o", wide), columns=100, rows=40)
    e = replay("Alice", columns=60, rows=10)
    e.wait_for("100x40 cut to 60x9")
    assert e.lines()[-3:-1] == ["x" * 60, "last row"]
    e.resize(100, 41)
    e.wait_for("top")
    e.wait(lambda: not e.shows("cut"), "nothing is cut off")
    e.wait_for("x" * 99 + "|")
    e.type("q")
    assert e.end() == 0


def test_a_suspended_replay_restores_the_terminal(relay: Relay, shell: Shell) -> None:
    session(relay.home, "Alice", *STILL)
    e = shell()
    e.type("relay replay Alice --idle 1000\r")
    e.wait(lambda: e.screen.alternate and e.shows("first"), "it plays")
    for stop in (lambda: e.type("\x1a"), lambda: os.kill(_player(relay), signal.SIGTSTP)):
        stop()
        e.wait(lambda: not e.screen.alternate and e.shows("Stopped"), "the shell is back")
        assert e.screen.cursor_visible and not e.shows("first")
        e.type("clear; fg\r")
        e.wait(lambda: e.screen.alternate and e.shows("first") and e.raw(), "it plays again")
    e.type("q")
    e.wait(lambda: not e.screen.alternate, "the shell is back")
    e.type("stty -a; echo do''ne\r")
    e.wait_for("done")
    assert e.shows(" echo ") and e.shows(" icanon ")
    e.type("exit\r")
    assert e.end() == 0


def _player(relay: Relay) -> int:
    """Return the process id of the player."""
    (pid,) = [pid for pid, command in processes_of(relay.home).items() if "relay replay" in command]
    return pid


def test_a_running_session_is_played_up_to_now(relay: Relay, replay: Replay) -> None:
    path = session(relay.home, "Alice", (0.0, "o", "so far"))
    with open(path, "ab") as recording:
        recording.write(b'[1.0, "o", "half a li')
    e = replay("Alice")
    e.wait_for("end 0:00/0:00")
    assert e.shows("so far")
    e.type("q")
    assert e.end() == 0


def test_key_sequences_are_named() -> None:
    assert names(b"a\x1b[C\x1bOD\x1b[1;5C /\x1b") == ["a", "right", "left", "right", " ", "/", "escape"]
    assert names("é\r\x7f\x03".encode()) == ["é", "enter", "backspace", "interrupt"]
    assert names(b"\x1b[200~\x1b[A\x00\xff") == ["\ufffd"]
