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
import json
import os
import shutil
import sys
import time
from dataclasses import asdict

from relay import names
from relay.control import guard
from relay.errors import MemoryStoreError
from relay.home import Home
from relay.memory import Memory, MemoryStore
from relay.text import one_line, printable_json, visible


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, help: str) -> argparse.ArgumentParser:
        it = actions.add_parser(name, help=help, description=help)
        it.add_argument("-n", "--name", help="act as this agent (default: you; in an agent, the agent)")
        it.add_argument("-t", "--team", help="its team (default: RELAY_TEAM, else 'default')")
        it.add_argument("--json", action="store_true", help="print JSON")
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
    team, agent = _acting_as(home, args.team, args.name)
    store = MemoryStore(home.memory, team, agent)
    try:
        match args.action:
            case "save":
                memory = store.save(_text(args.words), shared=args.shared)
                print(_json(memory) if args.json else f"Saved as {memory.id}.")
            case "search":
                found = store.search(" ".join(args.words), args.limit)
                print(_json(found) if args.json else _whole(found))
            case "list":
                newest = store.list(args.limit)
                print(_json(newest) if args.json else _table(newest))
            case "forget":
                if not store.forget(args.id):
                    raise MemoryStoreError(
                        f"there is no memory '{one_line(args.id)}'. `relay memory list` shows the ids."
                    )
                print(json.dumps({"forgotten": True}) if args.json else "Forgotten.")
    finally:
        store.close()
    return 0


def _acting_as(home: Home, team: str | None, name: str | None) -> tuple[str, str]:
    """The team and the agent whose memories are meant. An agent acts as itself; only a person may choose."""
    own = guard.as_itself(
        home,
        "memory",
        name=name,
        team=team,
        advice="an agent has its own memories only. Leave out --name and --team.",
    )
    if own is not None:
        return own.team, own.name
    agent = names.PERSON if name is None or names.same(name, names.PERSON) else names.validate(name)
    return names.validate(team or os.environ.get("RELAY_TEAM") or names.DEFAULT_TEAM, "team"), agent


def _text(words: list[str]) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if words == ["-"] else " ".join(words)


def _json(value: Memory | list[Memory]) -> str:
    rows = [asdict(memory) for memory in (value if isinstance(value, list) else [value])]
    return printable_json(rows if isinstance(value, list) else rows[0])


def _label(memory: Memory) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.time))
    return f"{memory.id}  {when}  {one_line(memory.agent, 20)}{' (shared)' if memory.shared else ''}"


def _table(memories: list[Memory]) -> str:
    """One line for each, cut to the terminal's width."""
    if not memories:
        return "Nothing is remembered yet. `relay memory save TEXT` remembers a text."
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
    labels = [_label(memory) for memory in memories]
    column = max(map(len, labels)) + 2
    rows = zip(labels, memories, strict=True)
    return "\n".join(f"{label:{column}}{one_line(m.text, max(width - column, 20))}" for label, m in rows)


def _whole(memories: list[Memory]) -> str:
    """Each with its whole text, indented under its label."""
    if not memories:
        return "No memory has any of these words."
    texts = (visible(memory.text).replace("\n", "\n    ") for memory in memories)
    return "\n".join(f"{_label(m)}\n    {text}" for m, text in zip(memories, texts, strict=True))
