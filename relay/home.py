"""The home: the directories with relay's files for one user, found from the environment.

    RELAY_HOME set:   RELAY_HOME/config      RELAY_HOME/state      RELAY_HOME/run
    otherwise (XDG):  ~/.config/relay        ~/.local/state/relay  ~/.local/state/relay/run

The sockets and locks are not in $XDG_RUNTIME_DIR: cron and su do not have it, and it is removed at the last
logout, which detached agents outlive.  All processes of a user that share the ledger must share the locks.

The directories are private to their owner (0700) because they hold sockets and credentials.  This module is
on the path to the agent's first byte: it does not import dataclasses, and pathlib only when a Path is needed
(16 ms).
"""

from __future__ import annotations

import errno
import os
import stat
import sys

from relay.errors import HomeError
from relay.names import key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from pathlib import Path

PYTHON = [sys.executable, *(["-X", "utf8"] if sys.flags.utf8_mode else []), "-P"]
"""The start of a command line that runs a module of relay: paths are decoded as in this process."""

# sockaddr_un.sun_path: 108 bytes on Linux (unix(7)), 104 on macOS, including the final NUL.
MAX_SOCKET_PATH = (108 if sys.platform == "linux" else 104) - 1


class _Entry:
    """An attribute of Home: the Path of one of its directories, or of something in it."""

    def __init__(self, directory: str, name: str = "") -> None:
        self._directory = directory
        self._name = name

    def __get__(self, home: Home, _: object) -> Path:
        from pathlib import Path

        return Path(getattr(home, self._directory), self._name)


class Home:
    """The three directories, and the paths in them. `run` holds what a reboot may remove: sockets, locks.

    The `*_dir` attributes are strings, the others Paths.
    """

    __slots__ = ("config_dir", "run_dir", "state_dir")

    config = _Entry("config_dir")
    state = _Entry("state_dir")
    run = _Entry("run_dir")

    ledger = _Entry("state_dir", "ledger.db")
    memory = _Entry("state_dir", "memory.db")
    journal = _Entry("state_dir", "events.jsonl")
    audit = _Entry("state_dir", "audit.jsonl")  # not in the journal, where other entries would push it out
    usage = _Entry("state_dir", "usage.jsonl")
    recordings = _Entry("state_dir", "recordings")
    disabled_rules = _Entry("state_dir", "disabled-rules.json")  # ids of rules that the user disabled
    trust = _Entry("state_dir", "trust.json")
    checked = _Entry("state_dir", "checked")  # versions of configurations without notices
    broker = _Entry("state_dir", "broker")  # the embedded broker's configuration, store and credentials

    def __init__(self, config: str, state: str, run: str) -> None:
        self.config_dir = config
        self.state_dir = state
        self.run_dir = run

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Home:
        """Return the home that `env` (default: os.environ) names, without touching a file."""
        env = os.environ if env is None else env
        join = os.path.join
        if root := env.get("RELAY_HOME"):
            base = _absolute(root)
            return cls(join(base, "config"), join(base, "state"), join(base, "run"))
        user = _absolute(env.get("HOME") or "~")
        config = join(xdg(env, "XDG_CONFIG_HOME") or join(user, ".config"), "relay")
        state = join(xdg(env, "XDG_STATE_HOME") or join(user, ".local", "state"), "relay")
        return cls(config, state, join(state, "run"))

    def agent_lock(self, team: str, name: str) -> str:
        """Return the path of the lock that an agent's shim holds while it runs, with or without a session."""
        return os.path.join(self.run_dir, "sessions", key(team), key(name) + ".lock")

    def courier(self, team: str, name: str, end: str) -> str:
        """Return the path of what the session that has the name keeps open: its "lock" or its "bell"."""
        return os.path.join(self.run_dir, "couriers", key(team), f"{key(name)}.{end}")

    def check_owner(self) -> None:
        """Raise HomeError if another user created the directory of the sockets before us; create nothing.

        Anyone can create a RELAY_HOME below /tmp.
        """
        if os.path.lexists(self.run_dir):
            _check_owner(self.run_dir)

    def check(self) -> Home:
        """Return the home if its directories can be read, or created if missing; create none.

        Raise HomeError if they cannot, or if another user created them. `ensure` also requires write access.
        """
        self.check_owner()
        for path in (self.config_dir, self.state_dir, self.run_dir):
            if not os.path.lexists(path):
                _check_creatable(path)
            elif not os.path.isdir(path):
                raise _unusable(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
            elif not os.access(path, os.R_OK | os.X_OK):
                raise _unusable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        return self

    def ensure(self) -> Home:
        """Create the directories, private to the owner. Raise HomeError if that fails."""
        for path in (self.config_dir, self.state_dir, self.run_dir):
            private_directory(path)
        return self


def xdg(env: Mapping[str, str], variable: str) -> str:
    """Return the directory that `variable` names, or "": the XDG specification ignores relative ones."""
    path = env.get(variable, "")
    return path if os.path.isabs(path) else ""


def share_home(env: MutableMapping[str, str]) -> None:
    """Make RELAY_HOME in `env` absolute: processes that inherit it may run in another directory."""
    if root := env.get("RELAY_HOME"):
        env["RELAY_HOME"] = _absolute(root)


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def make_directories(path: str | os.PathLike[str]) -> None:
    """Create `path` and its missing parent directories, all 0700. Raise OSError."""
    try:
        _make_directory(path)
    except FileNotFoundError:  # also if another process is just creating the parents
        make_directories(os.path.dirname(os.path.abspath(path)))
        _make_directory(path)


def _make_directory(path: str | os.PathLike[str]) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def private_directory(path: str | os.PathLike[str]) -> None:
    """Create `path` (0700) or make it private. Raise HomeError if it is not the caller's."""
    try:
        make_directories(path)
        info = _check_owner(path)
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(path, 0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unusable(path, error) from None


def _check_creatable(path: str) -> None:
    """Raise HomeError if `path` cannot be created. Test by trying: root may write to /proc, but cannot."""
    above = os.path.dirname(path)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    trial = os.path.join(above, f".relay-{os.getpid()}")
    try:
        os.mkdir(trial, 0o700)
        os.rmdir(trial)
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: str | os.PathLike[str], error: OSError) -> HomeError:
    return HomeError(
        f"cannot use the directory {os.fspath(path)}: {error.strerror}. "
        "Make it readable and writable, or set RELAY_HOME to a directory you own."
    )


def _check_owner(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the stat of `path`'s target. Raise HomeError if it, or a link at `path`, is not the caller's."""
    info = os.stat(path)
    if {info.st_uid, os.lstat(path).st_uid} != {os.getuid()}:
        raise HomeError(f"{os.fspath(path)} belongs to another user. Set RELAY_HOME to a directory you own.")
    return info


def check_socket_path(path: str | os.PathLike[str]) -> None:
    """Raise HomeError if `path` is longer than the kernel allows for a Unix socket."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH:
        raise HomeError(
            f"the socket path {os.fspath(path)} is {size} bytes long, and the system allows "
            f"{MAX_SOCKET_PATH}. "
            "Set RELAY_HOME to a shorter path, or choose a shorter name."
        )
