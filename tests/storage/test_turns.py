"""Turns: writers of one file proceed in the order of arrival, and nobody waits for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from relay.messaging.ledger import Ledger
from relay.storage.locks import is_held
from relay.storage.turns import Turns
from support import wait_until

HOLDER = """
import sys, time
from relay.storage.turns import Turns
turns = Turns(sys.argv[1])
turns.take(60)
print("mine", flush=True)
time.sleep(600)
"""


LISTED = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's queue is seen in /proc/locks")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db-turns")


def test_who_waits_goes_on_when_the_other_leaves(path: str) -> None:
    first, second = Turns(path), Turns(path)
    first.take(60)
    began, went_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        second.take(60)
        went_on.set()

    threading.Thread(target=wait).start()
    assert began.wait(60)
    assert not went_on.wait(0.1)
    first.leave()
    assert went_on.wait(60)
    assert is_held(path)
    second.leave()
    assert not is_held(path)


def queued(path: str, count: int) -> None:
    """Return when that many wait for the lock, as the kernel lists them.

    Its list is read page by page, and may repeat or lack a line: three looks in a row must agree.
    """
    inode, same = Path(path).stat().st_ino, 0
    while same < 3:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        same = same + 1 if sum(f":{inode} " in line and "->" in line for line in lines) == count else 0


@LISTED
def test_those_who_wait_go_on_in_their_order(path: str) -> None:
    """Waiting writers proceed in the order of the kernel's queue, whatever else they do meanwhile."""
    count = 10
    order: list[int] = []
    all_done = threading.Barrier(count + 1)
    first = Turns(path)
    first.take(60)

    def wait(number: int, turns: Turns) -> None:
        turns.take(60)
        order.append(number)
        turns.leave()
        all_done.wait(60)

    for number in range(count):
        turns = Turns(path)
        threading.Thread(target=wait, args=(number, turns), daemon=True).start()
        queued(path, number + 1)
    first.leave()
    all_done.wait(60)
    assert order == [*range(count)]


@LISTED
def test_a_new_file_is_made_in_turn(path: str) -> None:
    """Of 50 sessions started at once, some used to find the new ledger locked for longer than they wait."""
    first, made, file = Turns(path), threading.Event(), Path(path.removesuffix("-turns"))
    first.take(60)

    def make() -> None:
        Ledger(file).close()
        made.set()

    threading.Thread(target=make).start()
    queued(path, 1)
    assert not made.is_set()
    assert file.stat().st_size == 0
    first.leave()
    assert made.wait(60)


def test_the_turn_of_who_is_killed_is_over(path: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
    turns = Turns(path)
    holder.send_signal(signal.SIGKILL)
    turns.take(60)
    assert is_held(path)
    holder.communicate()


def test_who_has_waited_long_enough_goes_on_without_a_turn(path: str) -> None:
    """Another process may have stopped during its turn: SQLite's own lock decides then."""
    first, second = Turns(path), Turns(path)
    first.take(60)
    for _ in range(2):
        second.take(0.05)
        second.leave()
    assert is_held(path), "it was not the second one's to give back"
    first.leave()
    third = Turns(path)
    third.take(10)
    third.leave()
    # What the second one waited for is released; it may get it after the third.
    wait_until(lambda: not is_held(path))


def test_without_a_file_there_are_no_turns(tmp_path: Path) -> None:
    turns = Turns(str(tmp_path / "absent" / "turns"))
    turns.take(60)
    turns.leave()
    turns.close()


def test_who_closes_while_it_waits_leaves_nothing_taken(path: str) -> None:
    first, second, third = Turns(path), Turns(path), Turns(path)
    first.take(60)
    second.take(0.05)
    second.close()
    first.leave()
    third.take(60)
    assert is_held(path)
