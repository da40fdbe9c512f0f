"""How the processor time of commands and sessions grows with what there is.

python -m benchmarks.growth [--quick] [--write FILE]

Prints the table and writes it into docs/BENCHMARKS.md, which explains the figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import relay
from benchmarks import table
from benchmarks.bench import Bench, bench, wait_until
from benchmarks.footprint import cpu_seconds
from benchmarks.starts import spent

PAGE = Path(__file__).parent.parent / "docs" / "BENCHMARKS.md"

Measure = Callable[[Bench, int], float]
"""Returns the seconds of processor time for this much of what grows."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the two smaller sizes")
    parser.add_argument(
        "--write", type=Path, default=PAGE, metavar="FILE", help="the page (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    lines = ["| what | processor time | | |", "|---|---|---|---|"]
    for sizes, rows in _groups():
        found: dict[str, list[str]] = {what: [] for what in rows}
        with bench(options.quick) as own:
            for size in sizes[: 2 if options.quick else None]:
                for what, measure in rows.items():
                    found[what].append(f"{size:,}: {measure(own, size) * 1e3:,.0f} ms")
        lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in found.items()]
        print(*lines[-len(rows) :], sep="\n", flush=True)
    if not options.quick:
        text = "\n".join([*lines, "", f"{table.machine()} Made by `python -m benchmarks.growth`."])
        table.write(options.write, text, "growth")
    return 0


def _groups() -> Iterator[tuple[Sequence[int], dict[str, Measure]]]:
    words = ("ps", "messages", "messages --to R3", "messages --state expired", "send Bob hi", "inbox")
    yield (
        (1_000, 100_000, 1_000_000),
        {f"messages in the ledger: `relay {each}`": _with_messages(each.split()) for each in words},
    )
    words = ("ps", "replay", "replay Zoe --screen 0")
    yield (
        (50, 500, 5_000),
        {f"recordings: `relay {each}`": _with_recordings(each.split()) for each in words},
    )
    yield (1_000, 100_000, 1_000_000), {"lines of output: the session": _lines}
    yield (10_000, 1_000_000, 10_000_000), {"bytes of one line: the session": _long_line}
    yield (100, 1_000, 10_000), {"directives: the session": _directives}
    yield (5, 50, 500), {"messages that wait for a working agent: its session": _waiting}


def _of_command(own: Bench, words: Sequence[str]) -> float:
    """Return the least processor time of three runs of a command, with all that it starts."""
    return min(spent(own, [*own.command, *words])[1] for _ in range(3))


def _with_messages(words: Sequence[str]) -> Measure:
    def measure(own: Bench, size: int) -> float:
        if "Bob" not in own.relay("ps"):
            own.start("Bob", ["cat"])
            own.relay("send", "--wait", "20", "Bob", "hi")
        _fill(own, size)
        return _of_command(own, words)

    return measure


def _ledger(own: Bench) -> sqlite3.Connection:
    return sqlite3.connect(own.directory / "state" / "ledger.db", timeout=60)


def _fill(own: Bench, size: int) -> None:
    """Bring the ledger to `size` messages: copies of the first one among a dozen other agents."""
    with closing(_ledger(own)) as db:
        copied = [row[1] for row in db.execute("PRAGMA table_info(messages)") if row[1] != "place"]
        new = {
            "id": "lower(hex(randomblob(8)))",
            "sender": "'S' || n % 7",
            "sender_key": "'s' || n % 7",
            "recipient": "'R' || n % 11",
            "to_key": "'r' || n % 11",
            "turn": "n + 1",
        }
        values = ", ".join(new.get(column, column) for column in copied)
        with db:
            db.execute(
                "WITH RECURSIVE number(n) AS (SELECT count(*) FROM messages UNION ALL "
                "SELECT n + 1 FROM number WHERE n + 1 < ?) "
                f"INSERT INTO messages ({', '.join(copied)}) SELECT {values} FROM number, "
                "(SELECT * FROM messages ORDER BY place LIMIT 1) WHERE n < ?",
                (size, size),
            )


def _with_recordings(words: Sequence[str]) -> Measure:
    def measure(own: Bench, size: int) -> float:
        folder = own.directory / "state" / "recordings" / "default"
        if not [*folder.glob("Zoe-*")]:
            own.start("Zoe", ["sh", "-c", "echo hello; read line"])
            own.relay("stop", "Zoe")
        files = [path for path in folder.glob("Zoe-*") if "-0000" not in path.name]  # without the copies
        first = files[0].name.split(".")[0]
        for number in range(len([*folder.glob("*.cast")]), size):
            for path in files:
                copy = path.name.replace(first, f"{first[:-8]}{number:08x}")
                shutil.copy(path, folder / copy)
        return _of_command(own, words)

    return measure


def _of_session(own: Bench, program: str, more: Callable[[], None] = lambda: None) -> float:
    """Return the processor time of a session after its start, until it has read that `program` is done.

    The program begins when the file `go` exists.
    """
    go = own.directory / "go"
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
    done = "\nprint('\\n@relay:you done', flush=True)\nimport sys\nsys.stdin.read()"
    with own.detached("Ann", [sys.executable, "-S", "-c", wait + program + done]):
        pid = own.session("Ann")
        before, there = cpu_seconds(pid), _done(own)
        go.touch()
        more()
        wait_until(lambda: _done(own) > there, 600, "the session has read all")
        used = cpu_seconds(pid) - before
    go.unlink()
    return used


def _done(own: Bench) -> int:
    with closing(_ledger(own)) as db:
        query = "SELECT count(*) FROM messages WHERE to_key = 'you' AND body = 'done'"
        return int(db.execute(query).fetchone()[0])


def _lines(own: Bench, size: int) -> float:
    return _of_session(own, f"for _ in range({size}): print('a line of output, like any other')")


def _long_line(own: Bench, size: int) -> float:
    return _of_session(own, f"print('x' * {size})")


def _directives(own: Bench, size: int) -> float:
    return _of_session(own, f"for n in range({size}): print('@relay:you message', n)")


def _waiting(own: Bench, size: int) -> float:
    """The agent works all the time, so that nothing is given to it."""

    def send() -> None:
        os.environ["RELAY_HOME"] = str(own.directory)
        with relay.connect("sender") as me:
            for number in range(size):
                me.send("Ann", f"message {number}")
        (own.directory / "sent").touch()

    busy = "while not os.path.exists('sent'): print('.', end='', flush=True); time.sleep(0.2)"
    try:
        return _of_session(own, busy, send)
    finally:
        (own.directory / "sent").unlink()


if __name__ == "__main__":
    sys.exit(main())
