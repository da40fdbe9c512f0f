"""An inline TUI like agents built on Ink: it prints text above a live region, which it redraws each frame.

It prints each line of the script (argv[1], a file) letter by letter, while a spinner turns. `resize` in the
script redraws everything on a cleared screen, as such agents sometimes must.
"""

import os
import select
import sys

script = open(sys.argv[1], encoding="utf-8").read().split("\n")  # noqa: SIM115
printed: list[str] = []
live: list[str] = []
frame = 0


def out(text: str) -> None:
    os.write(1, text.replace("\n", "\r\n").encode())


def draw(lines: list[str]) -> None:
    """Erase and redraw the live region."""
    global live
    up = f"\x1b[{len(live) - 1}A" if len(live) > 1 else ""
    erase = f"\r{up}\x1b[J" if live else ""
    out(f"\x1b[?2026h{erase}" + "\n".join(lines) + "\x1b[?2026l")
    live = lines


def box() -> list[str]:
    global frame
    frame += 1
    return ["", f"{'|/-+'[frame % 4]} Working... ({frame}s - esc to interrupt)", "─" * 40, "> ", "─" * 40]


out("\x1b[?25l\x1b[?2004h")
draw(box())
for line in script:
    if line == "resize":
        live = []
        out("\x1b[2J\x1b[3J\x1b[H" + "".join(f"{text}\n" for text in printed))
        draw(box())
        continue
    for end in range(0, len(line) + 1, 7):
        draw([f"● {line[:end]}", *box()])
        select.select([], [], [], 0.002)
    draw([f"● {line}", ""])
    live = []
    printed += [f"● {line}", ""]
    out("\r")
    draw(box())
out("\x1b[?25h\x1b[?2004l\n")
