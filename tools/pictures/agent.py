"""A very small agent that acts a story: it prints lines, works for a while, and waits for messages.

    relay wrap -n Alice python3 agent.py stories/alice.txt

A story has one step on each line:

    say TEXT      print a line
    work SECONDS  be busy
    hear NAME     read lines until one is a message from NAME
    ask TEXT      ask for a decision, and read the answer

--clock: write down the time (seconds since the epoch) just before the first line.
--after: begin once that file exists.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

# SGR (ECMA-48, 8.3.117)
_BULLET, _DIRECTIVE, _QUESTION, _MESSAGE, _RESET = (
    "\x1b[32m",
    "\x1b[1;36m",
    "\x1b[1;33m",
    "\x1b[35m",
    "\x1b[0m",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("story", type=Path)
    parser.add_argument("--clock", type=Path, metavar="FILE")
    parser.add_argument("--after", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    steps = [line.partition(" ") for line in arguments.story.read_text(encoding="utf-8").splitlines()]
    while arguments.after and not arguments.after.exists():
        time.sleep(0.02)
    for step, _, text in steps:
        if step == "say":
            if arguments.clock and not arguments.clock.exists():
                arguments.clock.write_text(repr(time.time()), encoding="utf-8")
            say(text)
        elif step == "work":
            time.sleep(float(text))
        elif step == "hear":
            hear(text)
        elif step == "ask":
            print(f"{_QUESTION}{text}{_RESET} ", end="", flush=True)
            sys.stdin.readline()
    hear("")


def say(text: str) -> None:
    """Print a line: a directive, or a statement behind a bullet."""
    print(f"{_DIRECTIVE}{text}{_RESET}" if text.startswith("@") else f"{_BULLET}●{_RESET} {text}", flush=True)


def hear(name: str) -> None:
    """Read lines, echoed in a colour of their own, until one is a message from `name`; "": until the end."""
    print(_MESSAGE, end="", flush=True)
    for line in sys.stdin:
        if name and f" from {name}]" in line:
            break
    print(_RESET, end="", flush=True)


if __name__ == "__main__":
    main()
