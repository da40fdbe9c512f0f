"""Programs that are interactive only with certain arguments: `bash` is, `bash x.sh` is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Interactive:
    """One `[[interactive]]` table (relay.agents.pattern_file)."""

    names: tuple[str, ...]
    words: int = 0
    run: frozenset[str] = frozenset()
    stay: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()

    def matches(self, command: str, arguments: Sequence[str]) -> bool:
        """Return True if `command`, a basename, runs interactively with `arguments`."""
        if not any(fnmatchcase(command, name) for name in self.names):
            return False
        words, runs, stays = 0, False, False
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                words += len(list(rest))
            elif argument == "-" or not argument.startswith("-"):
                words += 1
                if words > self.words:
                    break
            else:
                for option, joined in _options(argument, self.value):
                    runs = runs or option in self.run
                    stays = stays or option in self.stay
                    if option in self.value and not joined:
                        next(rest, None)
        return stays or not (runs or words > self.words)


def _options(argument: str, value: frozenset[str]) -> list[tuple[str, bool]]:
    """Return the options in one argument, each with True if its value is joined to it (`-xc`, `--a=b`)."""
    if argument.startswith("--"):
        name, equals, _ = argument.partition("=")
        return [(name, bool(equals))]
    found: list[tuple[str, bool]] = [(argument, False)] if len(argument) > 2 else []
    for place, letter in enumerate(argument[1:], start=2):
        option = "-" + letter
        joined = place < len(argument)
        found.append((option, joined))
        if option in value:
            break
    return found
