"""The ledger's file survives several processes, kills, other versions, damage and full disks."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgers import send
from relay.errors import LedgerError
from relay.message import State
from relay.messaging import ledger_database
from relay.messaging.ledger import Ledger
from relay.messaging.ledger_database import LedgerGone

TEAM = "default"


def test_concurrent_claims_never_return_the_same_message(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        for number in range(250):
            send(ledger, TEAM, "Alice", ["Bob"], str(number))
    code = (
        "import sys\nfrom pathlib import Path\nfrom relay.messaging.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "while parcels := ledger.transit.claim('default', 'Alice', lambda *_: None, 7):\n"
        "    print(*(p.message.body for p in parcels), sep='\\n')\n"
    )
    claimers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    claimed = [int(line) for claimer in claimers for line in claimer.communicate(timeout=60)[0].split()]
    assert sorted(claimed) == list(range(250))


def test_committed_messages_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    code = (
        "import sys\nfrom pathlib import Path\nfrom relay.messaging.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "from relay.message import OutgoingMessage\n"
        "text = OutgoingMessage('Bob', 'x')\n"
        "while True:\n    print(ledger.outbox.send('default', 'Alice', ['Bob'], text)[0].id, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    accepted = [writer.stdout.readline().strip() for _ in range(50)]
    writer.send_signal(signal.SIGKILL)
    accepted += writer.stdout.read().split()
    writer.communicate()
    with Ledger(path) as ledger:
        kept = {entry.message.id for entry in ledger.messages()}
    assert kept >= {id for id in accepted if len(id) == 16}


def test_a_file_that_is_not_a_ledger_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"not a database, " * 1000)
    with pytest.raises(LedgerError, match=r"it is not a ledger\. Move it away"):
        Ledger(path)


def test_a_damaged_ledger_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        for _ in range(200):
            send(ledger, TEAM, "Alice", ["Bob"], "x" * 500)
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="damaged"), Ledger(path) as ledger:
        ledger.messages()


def write_version(path: Path, version: int) -> None:
    """Write a ledger of another relay, with the message "old"."""
    with Ledger(path) as ledger:
        send(ledger, TEAM, "Alice", ["Bob"], "old")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")


OLDER = Ledger.schema.version - 1


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ledger.db"
    write_version(path, Ledger.schema.version + 1)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"was written by a newer relay\. Upgrade relay, or move it away"):
        Ledger(path)
    assert path.read_bytes() == before
    assert caplog.messages == []


@pytest.mark.parametrize("version", [1, OLDER])
def test_a_ledger_of_an_older_version_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """One line of the log says so."""
    path = tmp_path / "ledger.db"
    write_version(path, version)
    with Ledger(path) as ledger, Ledger(path) as other:
        assert ledger.messages() == []
        (sent,) = send(ledger, TEAM, "Alice", ["Bob"], "new")
        assert [entry.message.id for entry in other.messages()] == [sent.id]
    aside = tmp_path / f"ledger-{version}.db"
    assert caplog.messages == [
        f"the message ledger of an earlier relay is now {aside}; its messages wait no more"
    ]
    with contextlib.closing(sqlite3.connect(aside)) as db:
        assert db.execute("SELECT body FROM messages").fetchall() == [("old",)]


def test_an_older_ledger_is_moved_with_its_wal_while_another_process_uses_it(tmp_path: Path) -> None:
    """A session of the earlier relay, which goes on with a new ledger; its last commits are in the WAL."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as old:
        send(old, TEAM, "Alice", ["Bob"], "in the WAL")
        old.rows(f"PRAGMA user_version = {OLDER}")
        with Ledger(path) as ledger:
            assert ledger.messages() == []
            with pytest.raises(LedgerGone, match="was moved away or deleted while in use"):
                send(old, TEAM, "Alice", ["Bob"], "late")
        companions = {each.name.partition(".db")[2] for each in tmp_path.glob(f"ledger-{OLDER}.db*")}
        assert {"", "-wal", "-shm"} <= companions
        with contextlib.closing(sqlite3.connect(tmp_path / f"ledger-{OLDER}.db")) as db:
            assert db.execute("SELECT body FROM messages").fetchall() == [("in the WAL",)]


def test_processes_that_open_an_older_ledger_together_share_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    write_version(path, OLDER)
    code = (
        "import logging, sys\nfrom pathlib import Path\nfrom relay.messaging.ledger import Ledger\n"
        "from relay.message import OutgoingMessage\n"
        "logging.basicConfig()\n"
        "print(flush=True)\ninput()\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "ledger.outbox.send('default', 'Alice', ['Bob'], OutgoingMessage('Bob', sys.argv[2]))\n"
    )
    processes = []
    for number in range(4):
        command = [sys.executable, "-c", code, str(path), str(number)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, text=True, **pipes))  # type: ignore[call-overload]
    for each in processes:
        each.stdout.readline()  # it is ready
    for each in processes:
        each.stdin.write("\n")
        each.stdin.flush()
    said = "".join(each.communicate(timeout=60)[1] for each in processes)
    assert [each.returncode for each in processes] == [0] * 4, said
    assert said.count("the message ledger of an earlier relay is now") == 1 and said.count("\n") == 1, said
    with Ledger(path) as ledger:
        assert sorted(entry.message.body for entry in ledger.messages()) == ["0", "1", "2", "3"]
    with contextlib.closing(sqlite3.connect(tmp_path / f"ledger-{OLDER}.db")) as db:
        assert db.execute("SELECT body FROM messages").fetchall() == [("old",)]


def test_an_older_ledger_that_another_process_has_just_moved_is_missed_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process has not created the new one yet."""
    path = tmp_path / "ledger.db"
    write_version(path, OLDER)

    @contextlib.contextmanager
    def another_is_faster(lock: Path) -> Iterator[None]:
        path.rename(tmp_path / f"ledger-{OLDER}.db")
        yield

    monkeypatch.setattr(ledger_database, "locked", another_is_faster)
    with Ledger(path) as ledger:
        assert ledger.messages() == []


def test_a_ledger_is_opened_again_if_another_process_moved_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite then found half of the older ledger's files."""
    path = tmp_path / "ledger.db"
    write_version(path, OLDER)
    use_wal, failures = Ledger._use_wal, []

    def fail_once(ledger: Ledger) -> None:
        if not failures:
            path.rename(tmp_path / f"ledger-{OLDER}.db")
            failures.append(sqlite3.OperationalError("disk I/O error"))
            failures[0].sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise failures[0]
        use_wal(ledger)

    monkeypatch.setattr(Ledger, "_use_wal", fail_once)
    with Ledger(path) as ledger:
        assert ledger.messages() == []
    path.unlink()
    write_version(path, OLDER)
    monkeypatch.setattr(path.__class__, "rename", lambda *_: path)  # nobody moves it
    failures.clear()
    with pytest.raises(LedgerError, match="the disk is failing or full"):
        Ledger(path)


def test_an_older_ledger_replaces_none_that_was_moved_aside_before(tmp_path: Path) -> None:
    """The user has gone back to the earlier relay meanwhile."""
    path = tmp_path / "ledger.db"
    for _ in range(3):
        write_version(path, OLDER)
        with Ledger(path):
            pass
        path.unlink()
    found = sorted(each.name for each in tmp_path.glob("ledger-*.db"))
    assert found == [f"ledger-{OLDER}-2.db", f"ledger-{OLDER}-3.db", f"ledger-{OLDER}.db"]


def test_a_sender_learns_how_its_message_was_delivered(tmp_path: Path) -> None:
    """If the receiver is in another home, the sender learns it from the receipt."""
    with Ledger(tmp_path / "here") as here, Ledger(tmp_path / "there") as there:
        (message,) = send(here, TEAM, "Alice", ["Bob"], "hello")
        (parcel,) = here.transit.claim(TEAM, "Alice", lambda *_: None, 1)
        there.inbox.store(TEAM, parcel)
        there.inbox.settle(TEAM, "Bob", message.id, State.UNCERTAIN, "not seen", route="typed", role="user")
        there.inbox.settle(TEAM, "Bob", message.id, State.INJECTED, route="typed", role="user")
        (receipt,) = there.inbox.receipts(TEAM, "Bob", 10)
        here.transit.receipt(TEAM, receipt)
        (known,) = here.outbox.outcomes(TEAM, "Alice")
        assert (known.state, known.detail) == (State.INJECTED, None)
        assert known.public()["route"] == "typed" and known.public()["role"] == "user"


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(tmp_path / "missing" / "ledger.db")


def test_a_locked_ledger_is_reported(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "busy_seconds", 0.01)
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with (
        pytest.raises(LedgerError, match="another process keeps it locked"),
        Ledger(tmp_path / "ledger.db") as second,
    ):
        send(second, TEAM, "Alice", ["Bob"], "x")
    other.close()


def test_a_full_disk_is_reported_and_accepted_messages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        (kept,) = send(ledger, TEAM, "Alice", ["Bob"], "kept")
    code = (
        "import sys\nfrom pathlib import Path\nfrom relay.messaging.ledger import Ledger\n"
        "from relay.errors import LedgerError\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "from relay.message import OutgoingMessage\n"
        "long = OutgoingMessage('Bob', 'x' * 60000)\n"
        "try:\n    while True: ledger.outbox.send('default', 'Alice', ['Bob'], long)\n"
        "except LedgerError as error:\n    print(error)\n"
    )

    def small_files() -> None:  # a write beyond the limit fails as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        preexec_fn=small_files,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "free some space" in done.stdout
    with Ledger(path) as ledger:
        assert kept.id in {entry.message.id for entry in ledger.messages()}
