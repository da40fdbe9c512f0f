"""The error for a package that a backend needs and that is not installed."""

from __future__ import annotations

import importlib.util
import shlex
import sys

from relay.errors import MemoryStoreError


def require(module: str, backend: str, *, extra: str | None = None, package: str | None = None) -> None:
    """Raise MemoryStoreError, with the command that installs it, if `module` cannot be imported.

    backend: what needs it. extra: the extra of agent-relay that has it; otherwise `package`, its pip name.
    """
    if importlib.util.find_spec(module) is None:
        wanted = f"agent-relay[{extra}]" if extra else package or module
        raise MemoryStoreError(
            f"{backend} needs {module}, which is not installed where relay runs. "
            f"Run: {shlex.quote(sys.executable)} -m pip install '{wanted}'"
        )
