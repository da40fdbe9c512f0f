"""A small TUI in raw mode: draws its own input, submits on CR, and logs what it accepted as JSON lines.

paste       enable bracketed paste (mode 2004) and collect pastes as agents do
alternate   draw on the alternate screen
deaf-enter  ignore the first CR after a text, as agents do that treat a quick CR as part of the paste
no-enter    never accept a CR
dialog      show a dialog whose Enter approves, from the start
silent      do not echo input
collapse    show a placeholder for a paste, as agents do with long ones
late        draw something else at first, and submit what is drawn: a placeholder until the text is drawn
scrolls     show only the end of a paste, as an input of one row does
newline     treat every CR as a newline in the input, as agents do with one in the same write
hasty       ignore a CR within 0.25 s of a paste's end, as agents do that treat it as part of the paste
working     show that it is working, from the start
asks        show a dialog below a paste
lines       return to the kernel's line input when it accepts a text, and show nothing more
"""

import json
import os
import select
import sys
import termios
import time
import tty

options = set(sys.argv[1:])
log = open(os.environ["AGENT_LOG"], "ab", buffering=0)  # noqa: SIM115
modes = termios.tcgetattr(0)
tty.setraw(0)


def out(text: str) -> None:
    os.write(1, text.encode())


def note(**what: object) -> None:
    log.write(json.dumps(what).encode() + b"\n")


if "alternate" in options:
    out("\x1b[?1049h")
if "paste" in options:
    out("\x1b[?2004h")
if "dialog" in options:
    out("Run rm -rf build?\r\n❯ 1. Yes\r\n  2. No\r\n\r\nEsc to cancel\r\n")
if "working" in options:
    out("⠹ Working...\r\n")
out("> ")
pasted = due = 0.0
typed, pasting, ignored, buffer = b"", False, False, b""
while True:
    while due and not select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
        due = 0.0
        out("[Pasted text]")
    if not (chunk := os.read(0, 65536)):
        break
    buffer += chunk
    while buffer:
        if buffer[:1] == b"\x1b" and len(buffer) < 6 and b"\x1b[201~".startswith(buffer):
            break  # the rest of the sequence is still missing
        if "paste" in options and buffer.startswith((b"\x1b[200~", b"\x1b[201~")):
            pasting, buffer = buffer.startswith(b"\x1b[200~"), buffer[6:]
            pasted = time.monotonic()
            if not pasting and "late" in options:
                out("\x1b7\x1b[40HPasting\x1b8")
                due = pasted + 0.4
            elif not pasting and "silent" not in options:
                shown = typed.decode("utf-8", "replace").replace("\n", "\r\n  ")
                if "scrolls" in options:
                    shown = shown[-40:]
                out("[Pasted text]" if "collapse" in options else shown)
                if "asks" in options:
                    out("\r\nRun rm -rf build?\r\n❯ 1. Yes\r\n  2. No\r\n\r\nEsc to cancel\r\n")
            continue
        key, buffer = buffer[:1], buffer[1:]
        if pasting:
            typed += key
        elif key == b"\r" and "newline" in options:
            typed += b"\n"
            out("\r\n  ")
        elif key == b"\r":
            if "hasty" in options and time.monotonic() - pasted < 0.25:
                note(ignored="CR")
                continue
            if "no-enter" in options or ("deaf-enter" in options and typed and not ignored):
                ignored = True
                continue
            ignored = False
            if "dialog" in options:
                note(approved=typed.decode("utf-8", "surrogateescape"))
            else:
                if due:
                    typed, due = b"[Pasted text]", 0.0
                note(submitted=typed.decode("utf-8", "surrogateescape"))
            typed = b""
            if "lines" in options:
                out("\r\n")
                termios.tcsetattr(0, termios.TCSADRAIN, modes)
                note(line=os.read(0, 65536).decode())
            out("\r\n● done\r\n> ")
        elif key < b" " or key == b"\x7f":
            note(control=key.hex())
            if key == b"\x03":
                sys.exit()
        else:
            typed += key
            if "silent" not in options:
                os.write(1, key)
