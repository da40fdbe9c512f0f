"""Output that commands share: tables, lists as a table or as JSON, the latest of many, ids and times."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from relay.cli.arguments import LATEST
from relay.message import ID_SHOWN
from relay.text import count, one_line, printable_json

T = TypeVar("T")


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return `rows`, each with as many cells, as lines; every column but the last is padded."""
    rows = list(rows)
    widths = [*(max(map(len, column)) for column in zip(*rows, strict=True))][:-1]
    return ["  ".join(map(str.ljust, row, [*widths, 0])).rstrip() for row in rows]


def print_json(value: Any) -> None:
    print(printable_json(value, indent=2))


def latest(found: list[T], args: argparse.Namespace, *, all_as_json: bool = True) -> list[T]:
    """Return the last entries of `found`, as many as --limit, --all and --json ask for."""
    if args.all or (args.limit is None and args.json and all_as_json):
        return found
    return found[max(len(found) - (args.limit or LATEST), 0) :]


def print_list(
    args: argparse.Namespace,
    found: list[T],
    public: Callable[[T], dict[str, Any]],
    row: Callable[[T], Sequence[str]],
    *,
    header: Sequence[str] = (),
    empty: str = "",
    noun: str = "",
) -> None:
    """Print `found` as JSON (its `public` forms) or as a table of its `row`s below `header`.

    noun: names the entries of a list with `add_limit`. Only its `latest` entries are printed, and to standard
    error how many are left out, or `empty`.
    """
    shown = latest(found, args) if noun else found
    if args.json:
        print_json(list(map(public, shown)))
        return
    if noun and len(shown) < len(found):
        earlier = count(len(found) - len(shown), f"earlier {noun}")
        print(f"({earlier} omitted; --all shows all.)", file=sys.stderr)
    if found:
        print("\n".join(table([*([header] if header else []), *map(row, shown)])))
    else:
        print(empty, file=sys.stderr if noun else sys.stdout)


class Outcomes:
    """Prints the result for each subject of a command: a sentence each, or with --json one list at the end.

    A context manager; the list is not printed if the command raises an error.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._rows: list[dict[str, Any]] | None = [] if getattr(args, "json", False) else None
        self.failed = False

    def done(self, sentence: str, **fields: Any) -> None:
        """Report a subject that was dealt with. fields: its object in the list."""
        if self._rows is None:
            print(sentence)
        else:
            self._rows.append(fields)

    def failure(self, name: str, error: Exception, **fields: Any) -> None:
        """Report a subject for which the command failed; with --json to standard error, too."""
        self.failed = True
        print(f"{name}: {error}", file=sys.stdout if self._rows is None else sys.stderr)
        if self._rows is not None:
            self._rows.append({"name": name, **fields, "outcome": "failed", "error": str(error)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._rows is not None and kind is None:
            print_json(self._rows)


def short_id(id: str) -> str:
    """Return the part of a message's id that is shown, safe to print: a peer may have made it."""
    return one_line(id[:ID_SHOWN], ID_SHOWN)


def day_and_time(seconds: float) -> str:
    """Return `seconds` since the epoch as month, day and time in the local time zone."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(seconds))
