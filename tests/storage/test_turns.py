"""Turns: writers of one file proceed in the order of arrival, and none waits for ever."""

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


LISTED = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lists the kernel's queue, in /proc/locks"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db-turns")


def test_a_waiting_writer_proceeds_when_the_holder_leaves(path: str) -> None:
    first, second = Turns(path), Turns(path)
    first.take(60)
    started, proceeded = threading.Event(), threading.Event()

    def wait() -> None:
        started.set()
        second.take(60)
        proceeded.set()

    threading.Thread(target=wait).start()
    assert started.wait(60)
    assert not proceeded.wait(0.1)
    first.leave()
    assert proceeded.wait(60)
    assert is_held(path)
    second.leave()
    assert not is_held(path)


def queued(path: str, count: int) -> None:
    """Return once `count` writers wait for the lock, as the kernel lists them.

    Its list is read page by page, and may repeat or lack a line: three looks in a row must agree.
    """
    inode, same = Path(path).stat().st_ino, 0
    while same < 3:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        same = same + 1 if sum(f":{inode} " in line and "->" in line for line in lines) == count else 0


@LISTED
def test_waiting_writers_proceed_in_order(path: str) -> None:
    """The order is that of the kernel's queue."""
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
def test_a_new_file_is_created_in_turn(path: str) -> None:
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


def test_the_turn_of_a_killed_process_is_over(path: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
    turns = Turns(path)
    holder.send_signal(signal.SIGKILL)
    turns.take(60)
    assert is_held(path)
    holder.communicate()


def test_a_writer_that_has_waited_long_enough_proceeds_without_a_turn(path: str) -> None:
    """Another process may have stopped during its turn: SQLite's own lock decides then."""
    first, second = Turns(path), Turns(path)
    first.take(60)
    for _ in range(2):
        second.take(0.05)
        second.leave()
    assert is_held(path), "the second writer has no turn to release"
    first.leave()
    third = Turns(path)
    third.take(10)
    third.leave()
    # The kernel may still grant the lock to the second one, after the third; it is then released.
    wait_until(lambda: not is_held(path))


def test_a_file_that_cannot_be_created_delays_nothing(tmp_path: Path) -> None:
    turns = Turns(str(tmp_path / "absent" / "turns"))
    turns.take(60)
    turns.leave()
    turns.close()


def test_closing_while_waiting_leaves_nothing_locked(path: str) -> None:
    first, second, third = Turns(path), Turns(path), Turns(path)
    first.take(60)
    second.take(0.05)
    second.close()
    first.leave()
    third.take(60)
    assert is_held(path)
