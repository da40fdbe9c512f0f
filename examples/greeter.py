#!/usr/bin/env python3
"""A very small agent: it prints lines, reads lines, and returns every greeting.

    relay wrap -n Bob   examples/greeter.py          waits for a greeting
    relay wrap -n Alice examples/greeter.py Bob      opens the conversation

All it knows of relay is how to write a message: `@relay:NAME text` on a separate line. Messages from other
agents arrive on its standard input, typed there by relay. With --log it records, as JSON lines, what it said
and read; this is how `relay demo` knows that a greeting arrived.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", nargs="?", metavar="NAME", help="greet this agent first")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append what is said and read to FILE")
    arguments = parser.parse_args()
    me = os.environ.get("RELAY_NAME", "Greeter")

    def note(did: str, text: str) -> None:
        if arguments.log:
            with arguments.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps({"agent": me, "did": did, "text": text, "time": time.time()}) + "\n")

    def say(text: str) -> None:
        note("said", text)
        print(text, flush=True)

    greeted = set()
    if arguments.peer:
        say(f"I am {me}, and I will say hello to {arguments.peer}.")
        say(f"@relay:{arguments.peer} Hello {arguments.peer}, I am {me}. Who are you?")
        greeted.add(arguments.peer)
    else:
        say(f"I am {me}. I wait until somebody says hello.")

    for line in sys.stdin:
        note("read", line.rstrip("\n"))
        if greeting := re.search(r"Hello \w+, I am (\w+)", line):
            peer = greeting[1]
            if peer in greeted:
                say(f"{peer} has greeted me too.")
            else:
                say(f"@relay:{peer} Hello {peer}, I am {me}. Nice to meet you!")
                greeted.add(peer)


if __name__ == "__main__":
    main()
