"""Where relay keeps its files: one home per person, found from the environment.

    RELAY_HOME set:   RELAY_HOME/config      RELAY_HOME/state      RELAY_HOME/run
    otherwise (XDG):  ~/.config/relay        ~/.local/state/relay  $XDG_RUNTIME_DIR/relay, else /tmp/relay-UID

Everything in it is private to its owner (0700); sockets and credentials lie there.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relay.errors import HomeError

# sockaddr_un.sun_path: 108 bytes on Linux (unix(7)), 104 on macOS, the final NUL included.
MAX_SOCKET_PATH = (108 if sys.platform == "linux" else 104) - 1


@dataclass(frozen=True, slots=True)
class Home:
    """The three directories. `run` holds what dies with the machine's uptime: sockets and locks."""

    config: Path
    state: Path
    run: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Home:
        """The home that `env` (default: os.environ) names. Touches no file."""
        env = os.environ if env is None else env
        if root := env.get("RELAY_HOME"):
            base = Path(root).expanduser().absolute()
            return cls(base / "config", base / "state", base / "run")
        user = Path(env.get("HOME") or Path("~").expanduser())
        config = Path(env.get("XDG_CONFIG_HOME") or user / ".config") / "relay"
        state = Path(env.get("XDG_STATE_HOME") or user / ".local" / "state") / "relay"
        runtime = env.get("XDG_RUNTIME_DIR")
        run = Path(runtime) / "relay" if runtime else Path(f"/tmp/relay-{os.getuid()}")
        return cls(config, state, run)

    def ensure(self) -> Home:
        """Create the directories, private to the owner; raise HomeError where that fails."""
        for path in (self.config, self.state, self.run):
            private_directory(path)
        return self

    @property
    def sessions(self) -> Path:
        """The directory of the sessions' control sockets, one `NAME.sock` and `NAME.json` each."""
        return self.run / "sessions"

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.db"

    @property
    def memory(self) -> Path:
        return self.state / "memory.db"

    @property
    def journal(self) -> Path:
        return self.state / "events.jsonl"

    @property
    def trust(self) -> Path:
        return self.state / "trust.json"

    @property
    def broker(self) -> Path:
        """The embedded broker's directory: configuration, store, credentials, endpoint file."""
        return self.state / "broker"


def private_directory(path: Path) -> Path:
    """Create `path` (0700) if it is not there, and check that it is the caller's own."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as error:
        raise HomeError(
            f"cannot use the directory {path}: {error.strerror}. "
            "Make it writable, or set RELAY_HOME to a directory of yours."
        ) from None
    if info.st_uid != os.getuid():
        raise HomeError(f"{path} belongs to another user. Set RELAY_HOME to a directory of yours.")
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def socket_path(path: Path) -> Path:
    """`path` if a Unix socket can be bound there; HomeError if the kernel's limit is exceeded."""
    size = len(os.fsencode(path))
    if size > MAX_SOCKET_PATH:
        raise HomeError(
            f"the socket path {path} has {size} bytes, and the system allows {MAX_SOCKET_PATH}. "
            "Set RELAY_HOME to a shorter path, or choose a shorter name."
        )
    return path
