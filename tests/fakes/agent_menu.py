"""A program that asks by a menu, as coding agents do, and logs the choice as JSON lines.

The options are drawn like claude's; the last one takes a text.

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


def draw() -> None:
    rows = ["\x1b[2J\x1b[H" + "─" * 40, f" {question}", " Do you want to proceed?"]
    for number, choice in enumerate(choices):
        shown = text if text and number == len(choices) - 1 else choice
        rows.append(f" {'❯' if number == at else ' '} {number + 1}. {shown}\x1b[m")
    os.write(1, "\r\n".join([*rows, "", " Esc to cancel · Tab to amend"]).encode())


def note(**what: object) -> None:
    log.write(json.dumps(what).encode() + b"\n")


draw()
note(asked=True)
while keys := os.read(0, 4096):
    if keys in (b"\x1b[A", b"\x1b[B"):
        if "shifty" in options:
            question = "rm -rf /"
        if "deaf" not in options:
            at = max(0, min(at + (1 if keys == b"\x1b[B" else -1), len(choices) - 1))
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
