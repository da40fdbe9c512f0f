"""Agents on other hosts, over ssh: relay there is the interface.

    ssh HOST relay top --json ─ boards, one on a line ─→ RemoteHost.board
    ssh HOST relay COMMAND ←─ keys; `ssh -t` for `relay attach`

All connections to a host share one (ControlMaster, ssh_config(5)).
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from relay.backoff import Backoff
from relay.control.board import Board, board_from
from relay.control.commands import CommandEnd
from relay.text import one_line

RETRY = Backoff(1.0, 60.0)
"""The waits between two attempts to reach a host."""


class RemoteHost(threading.Thread):
    """The agents of `team` (None: of all) on `host`, as ssh names it.

    run: a folder of the user's alone. board: the last one; None if there is none yet. problem: why it may be
    out of date, in a sentence; "" if it is not.
    """

    def __init__(self, host: str, team: str | None, run: Path) -> None:
        super().__init__(daemon=True)
        self.host = host
        self.board: Board | None = None
        self.problem = f"{host}: connecting ..."
        self._words = ["top", "--json", *([] if team is None else ["-t", team])]
        self._shared = ("ControlMaster=auto", f"ControlPath={run}/ssh-%C", "ControlPersist=60")
        self._over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self, *words: str, terminal: bool = False) -> list[str]:
        """Return the command that runs `relay WORDS` there; without a terminal, ssh asks for nothing."""
        options = [word for each in self._shared for word in ("-o", each)]
        how = ["-t"] if terminal else ["-o", "BatchMode=yes"]
        return ["ssh", *options, *how, "--", self.host, shlex.join(["relay", *words])]

    async def carry_out(self, *words: str, input: str = "") -> CommandEnd:
        """Run `relay WORDS` there. input: its standard input; others can see the words."""
        process = _start(self.command(*words))
        try:
            said = await asyncio.to_thread(process.communicate, input.encode("utf-8", "replace"))
        except asyncio.CancelledError:  # the user leaves; what a session was asked to do, it does
            process.kill()
            raise
        out, err = (each.decode("utf-8", "replace") for each in said)
        return CommandEnd(process.returncode, out, err)

    def run(self) -> None:
        attempts = 0
        while not self._over.is_set():
            before = self.board
            self._follow()
            attempts = 1 if self.board is not before else attempts + 1
            self._over.wait(RETRY.wait(attempts))

    def _follow(self) -> None:
        """Take boards until the connection ends."""
        try:
            self._process = _start(self.command(*self._words), start_new_session=True)
        except OSError as error:
            self.problem = f"ssh: {error.strerror}. Install it to see {self.host}."
            return
        with self._process as process:
            assert process.stdout is not None and process.stderr is not None
            try:
                for line in process.stdout:
                    self.board, self.problem = board_from(json.loads(line), self.host), ""
            except (ValueError, KeyError, TypeError):
                process.kill()
                self.problem = f"{self.host} runs another version of relay."
                return
            said = process.stderr.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        self.problem = f"{self.host}: {one_line(said, 200) or 'the connection has ended'}"

    def stop(self) -> None:
        self._over.set()
        if self._process is not None:
            self._process.kill()


def _start(argv: Sequence[str], *, start_new_session: bool = False) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=start_new_session)
