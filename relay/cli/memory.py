"""Save, search, list and forget memories: the store behind @memory:.

A memory belongs to the one who saves it; --shared makes it the whole team's. Inside a wrapped agent the
command acts as that agent; outside it acts as you, or as the agent that --name names. Whoever sees a memory
may forget it.

  relay memory save User prefers dark mode
  relay memory save --shared - < decisions.txt
  relay memory search dark or light theme
  relay memory forget k7mq
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import closing
from dataclasses import asdict
from typing import Any

from relay.cli.arguments import add_actions, add_json, add_member
from relay.cli.output import table
from relay.control import guard
from relay.errors import MemoryStoreError
from relay.home import Home
from relay.memory.backend import Memory
from relay.memory.embedded import EmbeddedBackend
from relay.memory.store import MemoryStore
from relay.text import one_line, printable_json, visible


def configure(parser: argparse.ArgumentParser) -> None:
    add = add_actions(parser)

    def action(name: str, help: str) -> argparse.ArgumentParser:
        it = add(name, help)
        add_member(it, "act as this agent")
        add_json(it, "print JSON")
        return it

    save = action("save", "Remember a text; '-' reads it from standard input.")
    save.add_argument("--shared", action="store_true", help="for the whole team, not for one agent alone")
    save.add_argument("words", nargs="+", metavar="TEXT")
    search = action("search", "Find memories by their words, best first.")
    search.add_argument("--limit", type=int, default=10, metavar="N", help="at most N (default: %(default)s)")
    search.add_argument("words", nargs="+", metavar="QUERY")
    newest = action("list", "Show the newest memories.")
    newest.add_argument("--limit", type=int, default=20, metavar="N", help="at most N (default: %(default)s)")
    forget = action("forget", "Delete a memory, named by its id or at least three letters of its beginning.")
    forget.add_argument("id", metavar="ID")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    advice = "an agent has its own memories only. Leave out --name and --team."
    who = guard.acting_as(home, "memory", name=args.name, team=args.team, advice=advice)
    public: dict[str, Any] | list[dict[str, Any]]
    with closing(MemoryStore(EmbeddedBackend(home.memory), who.team, who.name)) as store:
        match args.action:
            case "save":
                stdin = args.words == ["-"]
                text = sys.stdin.buffer.read().decode("utf-8", "replace") if stdin else " ".join(args.words)
                memory = store.save(text, shared=args.shared)
                shown, public = f"Saved as {memory.id}.", asdict(memory)
            case "search":
                found = store.search(" ".join(args.words), args.limit)
                shown, public = _whole(found), list(map(asdict, found))
            case "list":
                newest = store.list(args.limit)
                shown, public = _table(newest), list(map(asdict, newest))
            case "forget":
                if not store.forget(args.id):
                    what = f"there is no memory '{one_line(args.id)}'."
                    raise MemoryStoreError(f"{what} `relay memory list` shows the ids.")
                shown, public = "Forgotten.", {"forgotten": True}
    print(printable_json(public) if args.json else shown)
    return 0


def _label(memory: Memory) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.time))
    return f"{memory.id}  {when}  {one_line(memory.agent, 20)}{' (shared)' if memory.shared else ''}"


def _table(memories: list[Memory]) -> str:
    """Return a line for each memory, cut to the terminal's width."""
    if not memories:
        return "Nothing is remembered yet. `relay memory save TEXT` remembers a text."
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    labels = [_label(memory) for memory in memories]
    room = max(width - max(map(len, labels)) - 2, 20)
    texts = (one_line(memory.text, room) for memory in memories)
    return "\n".join(table(zip(labels, texts, strict=True)))


def _whole(memories: list[Memory]) -> str:
    """Return each memory with its whole text, indented under its label."""
    if not memories:
        return "No memory has any of these words."
    texts = (visible(memory.text).replace("\n", "\n    ") for memory in memories)
    return "\n".join(f"{_label(m)}\n    {text}" for m, text in zip(memories, texts, strict=True))
