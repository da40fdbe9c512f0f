"""What is wrong with a file of rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RuleWarning:
    """One thing that is wrong, and what to do; the rules around it are in force all the same.

    line:   1-based; 0 where it concerns the whole file.
    event:  as it is written there; "" where in none.
    unread: nothing can be said of the file's rules, since the file cannot be read as a whole.
    """

    path: Path
    text: str
    line: int = 0
    event: str = ""
    unread: bool = False

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{place}: {self.event}: {self.text}" if self.event else f"{place}: {self.text}"
