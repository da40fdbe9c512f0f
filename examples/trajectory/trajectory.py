"""One agent's trajectory, kept by the `trail` command (npm: agent-trajectories).

    phase(), message() ──→ pending ──→ one thread, one call at a time ──→ trail decision, trail reflect

`trail` reads its file, changes it and writes it back, without a lock, in some 0.6 s.  So each agent has its
own data directory, which is locked during each call. Whatever arrives during a call waits for the next one,
which records all of it.  Texts are passed as arguments: no shell ever sees them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

LIMIT = 10.0
"""Seconds that one call of trail may take."""

MAX_TITLE = 500
"""UTF-16 units in the title of a trajectory; trail refuses a longer one."""

MAX_MESSAGE = 2_000
"""Characters of a message to record. `relay messages` has all of it."""

MAX_ARGUMENT = 30_000
"""Characters in one argument: at four bytes each, below Linux's limit of 131,072 bytes."""

NOTHING_ACTIVE = "No active trajectory"
"""What trail prints if there is no active trajectory."""

_UNPRINTABLE = re.compile("[^\t\n -~\xa0-\ud7ff\ue000-\U0010ffff]")


class TrailError(Exception):
    """A call of trail failed; the message is one line, for the user."""


class Trajectory:
    """One agent's trajectory. Every method may be called from any thread; none raises.

    agent:    its name in the trajectory.
    folder:   where it works; trail looks for the git repository there.
    env:      its environment; `trail` comes from the PATH in it.
    data_dir: where trail keeps this agent's trajectories, and no other's.
    limit:    seconds for one call.
    """

    def __init__(
        self, agent: str, folder: Path, env: Mapping[str, str], data_dir: Path, limit: float = LIMIT
    ) -> None:
        self.data_dir = data_dir
        self._agent = agent
        self._folder = folder
        self._env = {**env, "TRAJECTORIES_DATA_DIR": str(data_dir)}
        self._limit = limit
        self._calling = threading.Lock()  # one call at a time
        self._begun = False  # until then, entries wait for `begin`, unless a trajectory is active
        self._task = ""  # starts a trajectory
        self._title: str | None = None  # of the active trajectory; "" if none; None while unknown
        self._phase = ""  # the last one recorded
        self._changed = threading.Condition()  # guards the fields below
        self._phases: list[tuple[str, str]] = []
        self._notes: list[str] = []
        self._writing = False
        self._closed = False
        self._problems: list[str] = []
        self._told: set[str] = set()

    def begin(self, task: str | None) -> str:
        """Start a trajectory for `task`, unless one is active; describe the active one, or return ""."""
        with self._calling:
            self._task, self._begun = _printable(task or "").strip(), True
            active = self._is_active()
            context = f"Active trajectory: {self._title}\nPhase: {self._phase or 'none yet'}"
        with self._changed:
            if self._phases or self._notes:
                self._wake()
        return context if active else ""

    def phase(self, name: str, said: str) -> None:
        """Record that the agent is now in phase `name`, unless it already was. said: how it said so."""
        with self._changed:
            if not self._closed and not (self._phases and self._phases[-1][0] == name):
                self._phases.append((name, _printable(said)))
                self._wake()

    def message(self, sender: str, body: str) -> None:
        """Record a message that the agent has received."""
        self._note(f"Message from {sender}: {_cut(_printable(body), MAX_MESSAGE)}")

    def problem(self) -> str | None:
        """Return the next unreported failure as one line; each is returned once."""
        with self._changed:
            return self._problems.pop(0) if self._problems else None

    def close(self) -> None:
        """Record what is pending, within the limit of one call; accept nothing afterwards."""
        with self._changed:
            self._closed = True
            if not self._changed.wait_for(lambda: not self._writing, self._limit):
                self._problems.append("trail: the last of the trajectory may not be recorded.")

    def _note(self, text: str) -> None:
        with self._changed:
            if not self._closed:
                self._notes.append(_printable(text))
                self._wake()

    def _wake(self) -> None:
        if not self._writing:
            self._writing = True
            threading.Thread(target=self._write, name="trajectory", daemon=True).start()

    def _write(self) -> None:
        """Record pending entries until none are left."""
        while True:
            with self._changed:
                phases, self._phases = self._phases, []
                count = _fitting(self._notes)
                notes, self._notes = self._notes[:count], self._notes[count:]
                if not phases and not notes:
                    self._writing = False
                    self._changed.notify_all()
                    return
            with self._calling:
                if self._begun or self._is_active():
                    self._record(phases, [])
                    self._record([], notes)
                    continue
                with self._changed:  # no trajectory to record it in yet: `begin` starts one
                    self._phases[:0], self._notes[:0] = phases, notes
                    self._writing = False
                    self._changed.notify_all()
                    return

    def _is_active(self) -> bool:
        try:
            self._open()
        except TrailError as error:
            self._failed(error)
        return bool(self._title)

    def _record(self, phases: list[tuple[str, str]], notes: list[str]) -> None:
        try:
            self._open()
            if self._title:
                self._record_phases(phases)
                self._record_notes(notes)
        except TrailError as error:
            if NOTHING_ACTIVE in str(error):
                self._title = ""  # the agent has completed it, so nothing more belongs to it
            else:
                self._failed(error)

    def _record_phases(self, phases: list[tuple[str, str]]) -> None:
        """Record the last of `phases` as a decision; its reasoning lists the phases passed through."""
        if phases and phases[0][0] == self._phase:
            phases = phases[1:]
        if not phases:
            return
        name, said = phases[-1]
        reasoning = f"The agent said: {_cut(said, MAX_MESSAGE)}"
        if len(phases) > 1:
            reasoning += f"\nPassed through: {', '.join(earlier for earlier, _ in phases[-21:-1])}"
        self._call("decision", f"--reasoning={reasoning}", "--", f"phase: {name}")
        self._phase = name

    def _record_notes(self, notes: list[str]) -> None:
        if notes:
            self._call("reflect", "--", "\n".join(notes))

    def _open(self) -> None:
        """Find the active trajectory, or start one for the task; do nothing if that is already done."""
        if self._title is not None and not self._task:
            return
        self._title, self._phase = self._active()
        task, title = self._task, _title(self._task)
        if task and not self._title:
            self._call("start", f"--agent={self._agent}", "--quiet", "--", title)
            self._title = title
            if task != title:
                self._note(f"Task: {_cut(task, MAX_ARGUMENT)}")
        elif task and title != self._title:
            self._note(f"New task: {_cut(task, MAX_ARGUMENT)}")
        self._task = ""

    def _active(self) -> tuple[str, str]:
        """Return the title and phase of the active trajectory; empty if there is none."""
        try:
            trajectory = json.loads(self._call("export", "--format=json"))
            events = [event for chapter in trajectory["chapters"] for event in chapter["events"]]
            chosen = [str(event.get("raw", {}).get("chosen", "")) for event in events]
            phases = [each.removeprefix("phase: ") for each in chosen if each.startswith("phase: ")]
            return str(trajectory["task"]["title"]), phases[-1] if phases else ""
        except TrailError as error:
            if NOTHING_ACTIVE in str(error):
                return "", ""
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TrailError("trail export: its output is no trajectory.") from None

    def _call(self, command: str, *arguments: str) -> str:
        """Run `trail COMMAND ARGUMENT...` and return its output. Raise TrailError."""
        program = shutil.which("trail", path=self._env.get("PATH", os.defpath))
        if program is None:
            raise TrailError("trail is not on the agent's PATH: npm install -g agent-trajectories")
        deadline = time.monotonic() + self._limit
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            with open(self.data_dir / ".lock", "w") as lock:
                _lock(lock.fileno(), deadline)
                with subprocess.Popen(
                    [program, command, *arguments],
                    cwd=self._folder,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],  # held until trail ends, even if this process is killed first
                ) as process:
                    try:
                        output, errors = process.communicate(timeout=deadline - time.monotonic())
                    except subprocess.TimeoutExpired:
                        os.killpg(process.pid, signal.SIGKILL)  # trail leads the group, and is not reaped yet
                        raise TimeoutError from None
        except TimeoutError:
            raise TrailError(f"trail {command} did not end within {self._limit:g} s.") from None
        except OSError as error:
            raise TrailError(f"trail {command}: {error.strerror}: {error.filename}") from None
        if process.returncode != 0:
            raise TrailError(f"trail {command}: {_reason(errors, process.returncode)}")
        return output.decode(errors="replace")

    def _failed(self, error: TrailError) -> None:
        with self._changed:
            if str(error) not in self._told:
                self._told.add(str(error))
                self._problems.append(str(error))


def _lock(descriptor: int, deadline: float) -> None:
    """Lock a file. Raise TimeoutError if another process holds the lock until `deadline`."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError from None
        time.sleep(0.05)


def _fitting(notes: Iterable[str]) -> int:
    """Return how many of `notes` fit into one argument, at least one."""
    count = size = 0
    for note in notes:
        size += len(note) + 1
        if count and size > MAX_ARGUMENT:
            break
        count += 1
    return count


def _printable(text: str) -> str:
    """Return `text` without NUL, which no argument may contain, and terminal control characters."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _cut(text: str, most: int) -> str:
    return (
        text if len(text) <= most else f"{text[: most - 50]} ... ({len(text) - most + 50:,} more characters)"
    )


def _title(text: str) -> str:
    """Return `text` as a title that trail accepts."""
    units = text.encode("utf-16-le")
    if len(units) <= 2 * MAX_TITLE:
        return text
    return units[: 2 * (MAX_TITLE - 1)].decode("utf-16-le", "ignore") + "…"


def _reason(errors: bytes, code: int) -> str:
    """Return why trail failed: the line of Node's stack trace that names the error."""
    text = _printable(errors.decode(errors="replace"))
    found = re.search(r"^\w*Error: (.+)", text, re.MULTILINE)
    return found[1] if found else f"exited with {code}"
