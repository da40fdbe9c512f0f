"""Draws an input box as Claude Code does, with an editor of its own, and says what is in it.

    agent_box.py SOCKET

Each datagram that comes to SOCKET is answered with the text in the box. An empty box shows a suggestion,
faint and behind the cursor.
"""

import os
import re
import select
import socket
import sys
import tty

KEY = re.compile(rb"\x1b\[200~(.*?)\x1b\[201~|\x1b\[[0-?]*[@-~]|\x1b.|[\xc2-\xf4][\x80-\xbf]+|.", re.DOTALL)

asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asked.bind(sys.argv[1])
tty.setraw(0)
text, at, killed = "", 0, ""
history, shown = ["first words", "/compact now"], 2


def draw() -> None:
    rule, box = "─" * 80, text.replace("\n", "⏎") or "\x1b[2mrun the tests again\x1b[22m"
    rows = ["● It is done.", "", rule, f"❯\xa0{box}", rule, "  ? for shortcuts"]
    page = "\r\n".join(rows)
    os.write(1, f"\x1b[?2026h\x1b[H\x1b[2J{page}\x1b[4;{3 + at}H\x1b[?2026l".encode())


def put(new: str) -> None:
    global text, at
    text, at = text[:at] + new + text[at:], at + len(new)


def erase(start: int, end: int) -> None:
    """Erase from `start` to `end`, and remember it for Ctrl-Y."""
    global text, at, killed
    if start < end:
        killed, text, at = text[start:end], text[:start] + text[end:], start


def recall(number: int) -> None:
    global text, at, shown
    if 0 <= number < len(history):
        shown, text = number, history[number]
        at = len(text)


def press(key: bytes) -> None:
    global text, at, shown
    word = len(re.sub(r"\S+\s*\Z", "", text[:at]))
    match key:
        case b"\r":
            with open(os.environ["AGENT_LOG"], "a") as log:
                log.write(f"{text}\n")
            history.append(text)
            text, at, shown = "", 0, len(history)
        case b"\x01" | b"\x1b[H":
            at = 0
        case b"\x05" | b"\x1b[F":
            at = len(text)
        case b"\x02" | b"\x1b[D":
            at = max(at - 1, 0)
        case b"\x06" | b"\x1b[C":
            at = min(at + 1, len(text))
        case b"\x1bb":
            at = word
        case b"\x7f":
            erase(max(at - 1, 0), at)
        case b"\x17" | b"\x1b\x7f":
            erase(word, at)
        case b"\x0b":
            erase(at, len(text))
        case b"\x15":
            erase(0, at)
        case b"\x19":
            put(killed)
        case b"\x1b[A" | b"\x10":
            recall(shown - 1)
        case b"\x1b[B" | b"\x0e":
            recall(shown + 1)
        case b"\x03":
            text, at = "", 0
        case _ if key >= b" " and not key.startswith(b"\x7f"):
            put(key.decode("utf-8", "replace"))


os.write(1, b"\x1b[?2004h")
draw()
while True:
    ready, _, _ = select.select([0, asked], [], [])
    if asked in ready:
        _, who = asked.recvfrom(9)
        asked.sendto(text.encode(), who)
    if 0 in ready:
        for key in KEY.finditer(os.read(0, 1 << 16)):
            if key[1] is not None:
                put(key[1].decode().replace("\r", "\n"))
            else:
                press(key[0])
        draw()
