"""Output that commands share: tables, lists as a table or as JSON, the latest of many, ids and times."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from relay.cli.arguments import LATEST
from relay.text import count, one_line, printable_json

T = TypeVar("T")


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return `rows`, each with as many cells, as lines; every column but the last is padded."""
    rows = list(rows)
    widths = [*(max(map(len, column)) for column in zip(*rows, strict=True))][:-1]
    return ["  ".join(map(str.ljust, row, [*widths, 0])).rstrip() for row in rows]


def print_json(value: Any) -> None:
    print(printable_json(value, indent=2))


def print_list(
    args: argparse.Namespace,
    public: Sequence[dict[str, Any]],
    rows: Iterable[Sequence[str]],
    *,
    header: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Print `public` with --json, else `rows` as a table below `header`, or `empty` where there are none."""
    if args.json:
        print_json(public)
    elif public:
        print("\n".join(table([*([header] if header else []), *rows])))
    else:
        print(empty)


def latest(found: list[T], args: argparse.Namespace, *, all_as_json: bool = True) -> list[T]:
    """Return those of `found` that --limit, --all and --json ask for, the last ones."""
    if args.all or (args.limit is None and args.json and all_as_json):
        return found
    return found[max(len(found) - (args.limit or LATEST), 0) :]


def print_latest(
    args: argparse.Namespace,
    found: list[T],
    public: Callable[[T], dict[str, Any]],
    row: Callable[[T], Sequence[str]],
    *,
    noun: str,
    empty: str,
) -> None:
    """Print the `latest` of `found`, and on standard error how many `noun`s that leaves out."""
    entries = latest(found, args)
    if args.json:
        print_json(list(map(public, entries)))
    elif not found:
        print(empty, file=sys.stderr)
    else:
        if left_out := len(found) - len(entries):
            print(f"({count(left_out, f'earlier {noun}')} left out; --all shows all.)", file=sys.stderr)
        print("\n".join(table(map(row, entries))))


def short_id(id: str) -> str:
    """Return as much of a message's id as commands show, safe to print: a peer may have made it."""
    return one_line(id[:8], 8)


def day_and_time(seconds: float) -> str:
    """Return `seconds` since the epoch as month, day and time in the local time zone."""
    return time.strftime("%m-%d %H:%M:%S", time.localtime(seconds))
