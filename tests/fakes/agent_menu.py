"""A program that asks by a menu, as coding agents do, and logs the choice as JSON lines.

The options are drawn like claude's, or without numbers; the last one takes a text.

form     a list, as copilot's
buttons  side by side, the selected one in another colour, as opencode's
lit      with numbers, and that colour, as opencode's

deaf     ignore the arrow keys
shifty   ask something else as soon as an arrow key arrives
stuck    ask again after every answer
again    ask again after an answer, once the file AGENT_LOG.again exists, which is then removed
"""

import json
import os
import sys
import time
import tty
from pathlib import Path

options = set(sys.argv[1:])
log = open(os.environ["AGENT_LOG"], "ab", buffering=0)  # noqa: SIM115
tty.setraw(0)
question, choices = "touch made.txt", ["Yes", "Yes, and don't ask again", "No\x1b[31m", "Type something."]
at, text = 0, ""


RULE, LIT = "─" * 40, "\x1b[48;5;208m"


def draw() -> None:
    labels = [*choices[:-1], text or choices[-1]]
    row = list(enumerate(labels))
    if "form" in options:
        listed = [f" {'❯' if n == at else ' '} {label}\x1b[m" for n, label in row]
        keys = "↑/↓ select · enter accept · ctrl+d decline · esc cancel"
        rows = [RULE, " Copilot needs information.", f" {question}", "", *listed, "", f" {keys}", RULE]
    elif "buttons" in options:
        buttons = " ".join(f"{LIT if n == at else ''} {label} \x1b[m" for n, label in row)
        keys = "ctrl+f fullscreen  ⇆ select  enter confirm"
        above = [
            "Build",
            "❯ 1. Quoted",
            "  2. Menu",
            *(f"  ┃  {each}" for each in ("△ Permission required", f"$ {question}")),
        ]
        rows = [*above, "  ┃", f"  ┃  {buttons}  {keys}", "  ┃"]
    elif "lit" in options:
        listed = [f"  ┃  {LIT if n == at else ''}{n + 1}. {label}\x1b[m" for n, label in row]
        rows = [
            "Build",
            "  ┃",
            f"  ┃  {question}",
            *listed,
            "  ┃  ↑↓ select  enter submit  esc dismiss",
            "  ┃",
        ]
    else:
        listed = [f" {'❯' if n == at else ' '} {n + 1}. {label}\x1b[m" for n, label in row]
        rows = [
            RULE,
            f" {question}",
            " Do you want to proceed?",
            *listed,
            "",
            " Esc to cancel · Tab to amend",
        ]
    os.write(1, "\r\n".join(["\x1b[2J\x1b[H" + rows[0], *rows[1:]]).encode())


def note(**what: object) -> None:
    log.write(json.dumps(what).encode() + b"\n")


draw()
note(asked=True)
while keys := os.read(0, 4096):
    if keys in ((b"\x1b[D", b"\x1b[C") if "buttons" in options else (b"\x1b[A", b"\x1b[B")):
        if "shifty" in options:
            question = "rm -rf /"
        if "deaf" not in options:
            at = max(0, min(at + (1 if keys in b"\x1b[B\x1b[C" else -1), len(choices) - 1))
    elif keys == b"\r":
        note(chose=at + 1, text=text)
        if "stuck" not in options:
            os.write(
                1, b"\x1b[2J\x1b[H" + b"\xe2\x94\x80" * 40 + b"\r\n\xe2\x9d\xaf \r\n" + b"\xe2\x94\x80" * 40
            )
            if "again" in options:
                again = Path(os.environ["AGENT_LOG"] + ".again")
                while not again.exists():
                    time.sleep(0.01)
                again.unlink()
                at, text = 0, ""
            else:
                os.read(0, 1)
    elif at == len(choices) - 1:
        text += keys.decode()
    else:
        note(keys=keys.decode())
    draw()
