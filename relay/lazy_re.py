"""`compile` as in `re`, but at the first use of the pattern: most describe what a session rarely sees."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import compile
    from typing import Any

__all__ = ["compile"]


class _Pattern:
    """Has the attributes of a compiled pattern, which it keeps as its own when they are first used."""

    def __init__(self, pattern: str | bytes, flags: int | re.RegexFlag = 0) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)
        return value


if not TYPE_CHECKING:
    compile = _Pattern
