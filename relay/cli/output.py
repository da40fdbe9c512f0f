"""Output that commands share: tables, lists as a table or as JSON, the latest of many, ids and times."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from relay.cli.arguments import LATEST
from relay.columns import columns_of, columns_of_terminal, fit
from relay.errors import NotAllowed, RelayError
from relay.message import ID_SHOWN
from relay.text import count, one_line, printable_json, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, TypeVar

    T = TypeVar("T")

_GAP = "  "
_LEAST = 12  # minimum width of a narrowed column: times, ids and most names stay whole
_RESET = "\x1b[0m"

RED, YELLOW, GREEN = "\x1b[31m", "\x1b[33m", "\x1b[32m"
"""SGR sequences: has failed; waits for you, or may be wrong; is fine."""


def print_table(
    rows: Iterable[Sequence[str]], *, right: Container[int] = (), colours: Sequence[Mapping[int, str]] = ()
) -> None:
    """Print `rows` as a `table`: whole, or on a terminal cut to its width and with `colours`.

    colours: for each row, SGR sequences (ECMA-48, 8.3.117) by column. NO_COLOR turns them off.
    """
    columns = terminal_columns()
    if columns is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        colours = ()
    print("\n".join(table(rows, columns, right=right, colours=colours)), flush=True)


def terminal_columns() -> int | None:
    """Return the width of the terminal on standard output, or COLUMNS; None if it is not a terminal."""
    return columns_of_terminal() if sys.stdout.isatty() else None


def table(
    rows: Iterable[Sequence[str]],
    columns: int | None = None,
    *,
    right: Container[int] = (),
    colours: Sequence[Mapping[int, str]] = (),
) -> list[str]:
    """Return `rows`, all with the same number of cells, as lines with aligned columns.

    columns: the maximum width of a line (None: any). The widest column is narrowed first; as a last resort,
    those on the right are cut. right: the indexes of the columns that are flush right, as numbers are.
    """
    rows = list(rows)
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    if columns is not None:
        _narrow(widths, columns)
    lines = []
    for number, row in enumerate(rows):
        painted = colours[number] if colours else {}
        room, cells = columns or sys.maxsize, []
        for at, cell in enumerate(row):
            if room <= 0:
                break
            text = fit(cell, min(widths[at], room), right=at in right)
            room -= columns_of(text) + len(_GAP)
            cells.append(f"{painted[at]}{text}{_RESET}" if at in painted else text)
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _narrow(widths: list[int], columns: int) -> None:
    """Narrow the widest column repeatedly until a line fits `columns` or no column exceeds _LEAST."""
    widths[:] = [min(width, columns) for width in widths]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > columns and max(widths) > _LEAST:
        last = max(range(len(widths)), key=lambda at: (widths[at], at))
        widths[last] -= 1


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
    right: Container[int] = (),
    colours: Callable[[T], Mapping[int, str]] = lambda _: {},
    empty: str = "",
    noun: str = "",
    earlier: bool = False,
) -> None:
    """Print `found` as JSON (its `public` forms) or as a table of its `row`s below `header`.

    right, colours: as in `print_table`.
    noun: names the entries of a list with `add_limit`. Print only its `latest` entries, and to standard error
    how many are omitted, or `empty`. earlier: more, which nobody has counted, precede those in `found`.
    """
    shown = latest(found, args) if noun else found
    if args.json:
        print_json(list(map(public, shown)))
        return
    omitted = len(found) - len(shown)
    if noun and (omitted or earlier):
        which = f"Earlier {noun}s" if earlier else count(omitted, f"earlier {noun}")
        print(f"({which} omitted; --all shows all.)", file=sys.stderr)
    if found:
        above: list[Sequence[str]] = [header] if header else []
        print_table(
            [*above, *map(row, shown)], right=right, colours=[*({} for _ in above), *map(colours, shown)]
        )
    else:
        print(empty, file=sys.stderr if noun else sys.stdout)


class Outcomes:
    """Reports the outcome for each subject of a command: a sentence each, or with --json one list at the end.

    A context manager. If the command raises an error, the list has the outcomes reported before it, if any.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._rows: list[dict[str, Any]] | None = [] if args.json else None
        self.failed = False

    def say(self, sentence: str) -> None:
        """Print a sentence, unless --json was given or it is ""."""
        if self._rows is None and sentence:
            print(sentence, flush=True)

    def add(self, **fields: Any) -> None:
        if self._rows is not None:
            self._rows.append(fields)

    def done(self, sentence: str, **fields: Any) -> None:
        """Report a processed subject. fields: its object in the list."""
        self.say(sentence)
        self.add(**fields)

    def also(self, sentence: str, **fields: Any) -> None:
        """Add to the last outcome."""
        self.say(sentence)
        if self._rows is not None:
            self._rows[-1] |= fields

    def complain(self, sentence: str) -> None:
        """Report a failure on standard error."""
        self.failed = True
        print(visible(f"relay: {sentence}"), file=sys.stderr)

    def failure(self, label: str, error: Exception, **fields: Any) -> None:
        """Report a subject for which the command failed. label: names it in the line, unless `error` does."""
        named = not label or str(error).startswith(f"{label} ")
        self.complain(str(error) if named else f"{label}: {error}")
        self.add(**fields, outcome="failed", error=str(error))

    @contextmanager
    def attempt(self, label: str, **fields: Any) -> Iterator[None]:
        """Report a RelayError in the block as a failure. Let NotAllowed pass: it concerns the command."""
        try:
            yield
        except NotAllowed:
            raise
        except RelayError as error:
            self.failure(label, error, **fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._rows is not None and (self._rows or kind is None):
            print_json(self._rows)


def short_id(id: str) -> str:
    """Return the part of a message's id to show, made safe: a peer may have chosen the id."""
    return one_line(id[:ID_SHOWN], ID_SHOWN)


def day_and_time(seconds: float) -> str:
    """Return `seconds` since the epoch as month, day and time in the local time zone."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(seconds))
