"""Trust in a project's files: by path and content, like direnv.

A file is trusted with exactly the bytes it has; any change ends the trust.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from relay.home import Home
from relay.storage.files import rewrite


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    import hashlib  # OpenSSL, 3 ms

    return hashlib.sha256(content).hexdigest()


def _key(path: Path) -> str:
    """Return the path by which a file is known. A link to a trusted file is another file."""
    return str(path.absolute().parent.resolve() / path.name)


class Trust:
    """The trusted files of one home: `{"files": {PATH: {"sha256": HEX, "time": SECONDS}}}`."""

    def __init__(self, home: Home) -> None:
        self._path = home.trust

    def covers(self, path: Path, content: bytes) -> bool:
        """Return True if `path` is trusted with `content`, the very bytes that the caller will use."""
        entry = self._read().get(_key(path))
        return isinstance(entry, dict) and entry.get("sha256") == digest(content)

    def grant(self, path: Path, content: bytes) -> str:
        """Trust `path` with `content` from now on, and with nothing else; return the digest."""
        value = digest(content)

        def text() -> str:
            files = self._read() | {_key(path): {"sha256": value, "time": time.time()}}
            return json.dumps({"files": files}, indent=2) + "\n"

        rewrite(self._path, text)
        return value

    def _read(self) -> dict[str, Any]:
        try:
            files = json.loads(self._path.read_bytes())["files"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}  # an unreadable file trusts nothing; the next grant rewrites it
        return files if isinstance(files, dict) else {}
