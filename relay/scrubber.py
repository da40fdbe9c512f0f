"""Removes from a text whatever identifies the machine: folders, addresses, names, secrets."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from relay.home import Home
from relay.redaction import Redactor, known_in

_URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,15})://[^\s'\"`<>]+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w<>~…/])/(?!/…)(?:[^\s'\"`,;:()<>]+)")
_TAIL = r"(/[^\s'\"`,;:()<>]*)?(?![\w.-])"  # what follows a known folder
_LEAST = 2
"""Minimum length of a name to replace; single letters are everywhere."""


class Scrubber:
    """Replaces folders and names by their marks and URLs by their scheme; removes other paths and secrets.

    folders: marks by the absolute paths of folders. names: marks by words, found in any case.
    secrets: values to remove, whatever they look like.
    """

    def __init__(
        self, folders: Mapping[str, str], names: Mapping[str, str], secrets: Iterable[str] = ()
    ) -> None:
        self._redactor = Redactor(secrets)
        deepest = sorted(folders, key=len, reverse=True)
        self._folders = [
            (re.compile(re.escape(path) + _TAIL), folders[path])
            for path in deepest
            if path.startswith("/") and len(path) > 1
        ]
        longest = sorted(names, key=len, reverse=True)
        self._names = [
            (re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE), names[name])
            for name in longest
            if len(name) >= _LEAST
        ]

    @classmethod
    def of_machine(cls, home: Home, directory: Path, env: Mapping[str, str]) -> Scrubber:
        """Return one for texts about this machine, `home` and `directory`. env: the user's environment."""
        account = pwd.getpwuid(os.getuid())
        user = env.get("HOME") or account.pw_dir
        given = {user: "~", account.pw_dir: "~", str(directory): "<directory>"}
        given |= {env["RELAY_HOME"]: "<home>"} if env.get("RELAY_HOME") else {}
        given |= {str(getattr(home, what)): f"<{what}>" for what in ("config", "state", "run")}
        folders = {form: mark for path, mark in given.items() for form in (path, os.path.realpath(path))}
        host = socket.gethostname()
        names = dict.fromkeys((host, host.partition(".")[0], env.get("HOSTNAME", "")), "<host>")
        names |= dict.fromkeys((account.pw_name, env.get("USER", ""), env.get("LOGNAME", "")), "<user>")
        return cls(folders, names, known_in(env))

    def __call__(self, text: str) -> str:
        """Return `text` scrubbed. Paths below a known folder are removed, too."""
        text = _URL.sub(r"\1://…", self._redactor.redact(text))
        for folder, mark in self._folders:
            text = folder.sub(lambda found, mark=mark: f"{mark}/…" if found[1] else mark, text)  # type: ignore[misc]
        text = _PATH.sub("…", text)
        for name, mark in self._names:
            text = name.sub(mark, text)
        return text
