"""A TUI controlled by a test: prints lines above its own input, and logs every text that it receives.

    session_tui.py FOLDER [--llm-history-file LOG]

FOLDER/received     every submitted text, with a newline at its end
FOLDER/strings   a datagram socket: {"say": TEXT} draws TEXT above the input, {"exit": CODE} ends
                 {"log": TEXT} appends TEXT to LOG; {"bottom": TEXT} draws TEXT in place of the input
"""

import json
import os
import select
import signal
import socket
import sys
import tty

folder = sys.argv[1]
strings = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
strings.bind(f"{folder}/strings")
tty.setraw(0)


def out(text: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


def draw(above: str = "") -> None:
    """Redraw the live region: the input's row, below new text."""
    shown = typed.decode("utf-8", "replace").replace("\n", " ")
    lines = "".join(f"● {line}\r\n" for line in above.splitlines())
    out(f"\x1b[?2026h\r\x1b[J{lines}{bottom or '> ' + shown[-60:]}\x1b[?2026l")


log = os.open(f"{folder}/received", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
signal.signal(signal.SIGWINCH, lambda *_: draw())
typed, pasting, rest, bottom = b"", False, b"", ""
out("\x1b[?2004h")
draw()
while True:
    ready, _, _ = select.select([0, strings], [], [])
    if strings in ready:
        match json.loads(strings.recv(1 << 20)):
            case {"say": text}:
                draw(text)
            case {"log": text}:
                with open(sys.argv[sys.argv.index("--llm-history-file") + 1], "a") as record:
                    record.write(text)
            case {"bottom": bottom}:
                draw()
            case {"exit": code}:
                out("\x1b[?2004l\r\n")
                os._exit(code)
    if 0 not in ready:
        continue
    if not (chunk := os.read(0, 1 << 16)):
        break
    rest += chunk
    while rest:
        if rest == chunk == b"\x1b" and not pasting:
            os.write(log, rest)  # Esc alone
            rest = b""
            break
        if rest[:1] == b"\x1b" and len(rest) < 6 and b"\x1b[201~".startswith(rest):
            break  # the rest of the sequence is still missing
        if rest.startswith((b"\x1b[200~", b"\x1b[201~")):
            pasting, rest = rest.startswith(b"\x1b[200~"), rest[6:]
            continue
        key, rest = rest[:1], rest[1:]
        if key == b"\r" and not pasting:
            os.write(log, typed + b"\n")
            typed = b""
        elif key in b"\x7f\x08":
            typed = typed[:-1]
        elif key == b"\x15":
            typed = b""
        elif key == b"\x03":
            os.write(log, key)
        elif pasting or key >= b" ":
            typed += b"\n" if key == b"\r" else key
    draw()
