"""An agent with hooks like Claude Code's, wrapped in its own session (tests/fakes/agent_hooked.py)."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from session.fake_agent import events
from support import Relay, wait_until

FAKE = Path(__file__).parent.parent / "fakes" / "agent_hooked.py"

Json = dict[str, Any]


class Claude:
    """The fake program, named `claude`, in its own session."""

    def __init__(self, relay: Relay, name: str = "Ann", *, team: str = "") -> None:
        self.relay = relay
        self.name = name
        self.team = team or relay.team or "default"
        self.folder = relay.home / f"agent {name} of {self.team}"
        self.folder.mkdir()
        self.program = self.folder / "claude"
        run = f"import sys; sys.path.insert(0, {str(FAKE.parent)!r}); import {FAKE.stem}"
        self.program.write_text(f"#!{sys.executable} -SXutf8\n{run}\n")
        self.program.chmod(0o755)

    def wrap(
        self,
        *arguments: str,
        cwd: Path | None = None,
        options: tuple[str | Path, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> Claude:
        self.relay(
            "wrap",
            "-d",
            "-n",
            self.name,
            "-t",
            self.team,
            *options,
            "--",
            self.program,
            *arguments,
            cwd=cwd,
            env={"AGENT_FOLDER": str(self.folder), **(env or {})},
        )
        wait_until(lambda: (self.folder / "strings").exists() and self.socket.exists())
        return self

    @property
    def socket(self) -> Path:
        return self.relay.home / "run" / "sessions" / self.team / f"{self.name.lower()}.sock"

    @property
    def settings(self) -> Path:
        """Return the file given by its `--settings`."""
        arguments = json.loads((self.folder / "arguments").read_text())
        return Path(arguments[arguments.index("--settings") + 1])

    def fire(self, event: str, raw: str = "", *, below: bool = False, **payload: Any) -> list[Json]:
        """Have it call the hooks of `event` with `payload`, or the text `raw`; return how each call ended.

        below: a child process of the agent calls them.
        """
        before = len(self.calls())
        expected = len(json.loads(self.settings.read_text())["hooks"][event])
        if event == "PreToolUse" and payload.get("tool_name") not in {"ExitPlanMode", "AskUserQuestion"}:
            expected -= 1
        self._pull({"fire": event, "payload": raw or payload, "below": below})
        wait_until(lambda: len(self.calls()) == before + expected, 120, message=lambda: str(self.calls()))
        return self.calls()[before:]

    def calls(self) -> list[Json]:
        path = self.folder / "called"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def write(self, name: str, frame: Json, times: int = 1) -> str:
        """Have it send `frame`, `times` at once, to `name` in its list; return what came back."""
        wrote = self.folder / "wrote"
        wrote.unlink(missing_ok=True)
        self._pull({"write": name, "frame": frame, "times": times})
        wait_until(lambda: wrote.exists() and wrote.read_text().endswith("\n"))
        return str(json.loads(wrote.read_text()))

    def print(self, text: str) -> None:
        self._pull({"print": text})

    def exit(self, code: int = 0) -> None:
        self._pull({"exit": code})

    def events(self, kind: str) -> list[Json]:
        return [
            e for e in events(self.relay, self.name, kind) if (e["event"], e["name"]) == (kind, self.name)
        ]

    def _pull(self, what: Json) -> None:
        (self.folder / "pulled").write_text(json.dumps(what))  # five megabytes do not fit into a datagram

        def sent() -> bool:
            try:
                strings.sendto(b"", str(self.folder / "strings"))
            except (ConnectionRefusedError, FileNotFoundError):
                return False  # it was restarted, and does not listen yet
            return True

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as strings:
            wait_until(sent)
        wait_until(lambda: not (self.folder / "pulled").exists())
