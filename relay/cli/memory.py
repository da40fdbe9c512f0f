"""Save, search, list and delete memories, in the same store as @memory:.

A memory belongs to the agent that saves it; --shared gives it to the whole team. Inside a wrapped agent the
command acts as that agent; outside, it acts as you, or as the agent that --name names. Any agent that can
see a memory may delete it. The backend is that of the sessions in this folder; `export` and `import` move
memories between backends.

  relay memory save User prefers dark mode
  relay memory save --shared - < decisions.txt
  relay memory search dark or light theme
  relay memory forget k7mq
  relay memory export --embedded | relay memory import -
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from relay.cli.arguments import add_actions, add_json, add_member, positive
from relay.cli.output import print_table
from relay.control import guard
from relay.dataclass import asdict
from relay.errors import MemoryStoreError, UsageError
from relay.home import Home
from relay.memory.backend import Memory, MemoryBackend
from relay.memory.config import MemoryConfig
from relay.memory.opening import open_backend
from relay.memory.store import MemoryStore, checked
from relay.text import one_line, printable_json, visible

MOVES = ("export", "import")
"""The actions on the memories of all agents."""

_LONGEST_LINE = 1 << 20  # bytes of an exported memory; it has at most 64 KB, which JSON makes longer


def configure(parser: argparse.ArgumentParser) -> None:
    add = add_actions(parser)

    def action(name: str, help: str) -> argparse.ArgumentParser:
        it = add(name, help)
        if name not in MOVES:
            add_member(it, "act as this agent")
        add_json(it, "print JSON")
        it.add_argument(
            "--config",
            metavar="FILE",
            help="use the backend of this relay.config.py instead of this folder's",
        )
        it.add_argument(
            "--embedded", action="store_true", help="use the embedded backend, ignoring any configuration"
        )
        return it

    save = action("save", "Save a text as a memory; '-' reads it from standard input.")
    save.add_argument("--shared", action="store_true", help="for the whole team, not just one agent")
    save.add_argument(
        "--metadata", metavar="KEY=VALUE", action="append", default=[], help="store this with it (repeatable)"
    )
    save.add_argument("words", nargs="+", metavar="TEXT")
    search = action("search", "Find memories by their words, best matches first.")
    search.add_argument(
        "--limit", type=positive, default=10, metavar="N", help="at most N (default: %(default)s)"
    )
    search.add_argument("words", nargs="+", metavar="QUERY")
    newest = action("list", "Show the newest memories.")
    newest.add_argument(
        "--limit", type=positive, default=20, metavar="N", help="at most N (default: %(default)s)"
    )
    forget = action(
        "forget", "Delete a memory by its id, or by the first letters of its id (at least three)."
    )
    forget.add_argument("id", metavar="ID")
    action("export", "Print the memories of all agents as JSON lines.")
    add_from = action("import", "Add memories printed by `export`, skipping those that already exist.")
    add_from.add_argument("file", metavar="FILE", help="'-' for standard input")


def run(args: argparse.Namespace) -> int:
    home = Home.from_env().ensure()
    if args.action in MOVES:
        guard.user_only(home, f"memory {args.action}", "an agent can use only its own memories.")
        who = guard.acting_as(home, "memory", name=None, team=None, advice="")
    else:
        advice = "an agent can use only its own memories. Leave out --name and --team."
        who = guard.acting_as(home, "memory", name=args.name, team=args.team, advice=advice)
    public: dict[str, Any] | list[dict[str, Any]]
    backend = _backend(args, home)
    with closing(MemoryStore(backend, who.team, who.name)) as store:
        match args.action:
            case "save":
                stdin = args.words == ["-"]
                text = sys.stdin.buffer.read().decode("utf-8", "replace") if stdin else " ".join(args.words)
                memory = store.save(text, shared=args.shared, metadata=_metadata(args.metadata))
                shown, public = f"Saved as {memory.id}.", asdict(memory)
            case "search":
                found = store.search(" ".join(args.words), args.limit)
                shown, public = _whole(found), list(map(asdict, found))
            case "list":
                newest = store.list(args.limit)
                if newest and not args.json:
                    print_table((*_label(memory), one_line(memory.text, None)) for memory in newest)
                    return 0
                shown = "There are no memories yet. Save one with `relay memory save TEXT`."
                public = list(map(asdict, newest))
            case "forget":
                if not store.forget(args.id):
                    what = f"there is no memory '{one_line(args.id)}'."
                    raise MemoryStoreError(f"{what} `relay memory list` shows the ids.")
                shown, public = "Forgotten.", {"forgotten": True}
            case "export":
                for memory in backend.everything():
                    print(printable_json(asdict(memory)))
                return 0
            case "import":
                shown, public = _import(store, backend, list(_memories(args.file)), as_json=args.json)
    print(printable_json(public) if args.json else shown)
    return 0


def _backend(args: argparse.Namespace, home: Home) -> MemoryBackend:
    if args.embedded:
        return open_backend(MemoryConfig(), home)
    from relay.session import memory_settings  # it may execute a relay.config.py, and loads the code for that

    config, notices = memory_settings.load(home, Path.cwd(), Path(args.config) if args.config else None)
    for notice in notices:
        print(f"relay: {notice}", file=sys.stderr)
    return open_backend(config, home)


def _metadata(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if wrong := [key for key, equals, _ in pairs if not key or not equals]:
        raise UsageError(f"--metadata is KEY=VALUE, not '{one_line(wrong[0])}'.")
    return {key: value for key, _, value in pairs}


def _memories(file: str) -> Iterator[Memory]:
    """Yield the memories in `file`. Raise MemoryStoreError for a line that is not one."""
    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(_LONGEST_LINE + 1), b""), 1):
                if len(line) > _LONGEST_LINE:
                    what = f"line {number} is longer than {_LONGEST_LINE:,} bytes."
                    raise MemoryStoreError(f"{what} Nothing was imported.")
                if line.strip():
                    try:
                        yield checked(Memory.from_json(json.loads(line)))
                    except (ValueError, RecursionError, MemoryStoreError) as error:
                        what = f"line {number} is not a memory: {error}"
                        raise MemoryStoreError(f"{what} Nothing was imported.") from None
    except OSError as error:
        raise MemoryStoreError(f"{file} cannot be read: {error.strerror}.") from None


def _import(
    store: MemoryStore, backend: MemoryBackend, memories: list[Memory], *, as_json: bool
) -> tuple[str, dict[str, Any]]:
    """Add the memories; return the counts as a sentence and as JSON.

    Raise MemoryStoreError if one cannot be added; if `as_json`, print the counts until then first.
    """

    def counts(done: int) -> dict[str, Any]:
        return {"imported": added, "known": done - added, "renamed": renamed, "left": len(memories) - done}

    before = {memory.id for memory in backend.everything()}
    added = renamed = 0
    for number, memory in enumerate(memories):
        try:
            kept = store.add(memory)
        except MemoryStoreError as error:
            if as_json:
                print(printable_json(counts(number)))
            raise MemoryStoreError(
                f"{error} {number} of {len(memories)} memories were imported. Import the file again: it "
                "skips those."
            ) from None
        if kept.id not in before:
            added += 1
            renamed += bool(memory.id) and kept.id != memory.id
            before.add(kept.id)
    shown = f"{added} imported, {len(memories) - added} already present."
    if renamed:
        shown += f" {renamed} of them have a new id, because theirs was taken or invalid."
    return shown, counts(len(memories))


def _label(memory: Memory) -> tuple[str, str, str]:
    try:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.time))
    except (OSError, OverflowError, ValueError):  # a store may have any number
        when = "no date"
    owner = f"{one_line(memory.agent, None)}{' (shared)' if memory.shared else ''}"
    return (one_line(memory.id, None), when, owner)


def _whole(memories: list[Memory]) -> str:
    """Return each memory with its whole text, indented under its label."""
    if not memories:
        return "No memory contains any of these words."
    texts = (visible(memory.text).replace("\n", "\n    ") for memory in memories)
    labels = ("  ".join(_label(memory)) for memory in memories)
    return "\n".join(f"{label}\n    {text}" for label, text in zip(labels, texts, strict=True))
