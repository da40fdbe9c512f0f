"""Gemini CLI's set-up: a file of system defaults with hooks for one run, or its session's name.

It reads such a file only if nobody but root could have written it (0.61.0), and complains on its screen about
any other.  It has no other place for the hooks of one run (docs/NATIVE.md), so only root's agents have a
bridge.  The words of other users' agents are in the transcripts of a session whose id we choose.
"""

from __future__ import annotations

import glob
import re
import time
import uuid
from pathlib import Path

from relay.agents.hook_setup import TIMEOUT, Prepared, Run, entries, handler, with_defaults
from relay.agents.named_transcripts import Named, iso

NOTE = (
    "Gemini takes hooks for a single run only from a folder that root owns and only root can write to; relay "
    "reads its screen instead"
)

_COMMANDS = frozenset({"mcp", "extension", "extensions", "gemma", "hook", "hooks", "skill", "skills"})
_NO_SESSION = frozenset(
    {"--delete-session", "--help", "--list-extensions", "--list-sessions", "--version", "-h", "-l", "-v"}
)
_RESUMES = frozenset({"--resume", "--session-file", "-r"})
_ID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\Z")


def prepare(run: Run) -> Prepared:
    """Return the command with a file of defaults, or else with a session id."""
    if not _only_root_writes(Path(run.directory)):
        return _with_session(run)
    ours = entries("gemini", run.directory, _handler)
    return with_defaults(run, "gemini", ours, "GEMINI_CLI", linux="gemini-cli", macos="GeminiCli")


def _handler(command: list[str]) -> dict[str, object]:
    """Return a handler with its timeout in milliseconds; Gemini shows its `name` while it runs."""
    return {**handler(command, TIMEOUT * 1000), "name": "relay"}


def _only_root_writes(folder: Path) -> bool:
    """Return True if Gemini trusts `folder` and all its parents, with and without links resolved."""
    folders = {each for path in (folder.absolute(), folder.resolve()) for each in (path, *path.parents)}
    return all(info.st_uid == 0 and not info.st_mode & 0o022 for info in map(Path.stat, folders))


def _with_session(run: Run) -> Prepared:
    """Return the command with `--session-id`, unless the user has chosen the session."""
    command, id = list(run.command), _session(run.arguments)
    if id is None:
        id = str(uuid.uuid4())
        command = run.with_flags(["--session-id", id], run.arguments)
    if not id:
        return Prepared(command, run.env, note=NOTE)
    home = run.env.get("GEMINI_CLI_HOME") or run.env.get("HOME", "")
    pattern = f"{glob.escape(home)}/.gemini/tmp/*/chats/session-*-{glob.escape(id[:8])}.jsonl"
    record = Named("gemini", pattern, iso(time.time()), f'"{id}"', session=id)
    return Prepared(command, run.env, note=NOTE, record=record)


def _session(arguments: tuple[str, ...]) -> str | None:
    """Return the id of the session that the user chose; "" if it is unknown or there is none.

    None: the user leaves the choice to Gemini.
    """
    if not _COMMANDS.isdisjoint(arguments):
        return ""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--":
            break
        if name in _NO_SESSION:
            return ""
        if name == "--session-id":
            return value if equals else next(words, "")
        if name in _RESUMES or name.startswith("-r"):  # -rlatest
            value = value if equals else next(words, "")
            return value if _ID.match(value) else ""
    return None
