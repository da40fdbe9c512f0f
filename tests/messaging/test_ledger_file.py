"""The ledger's file survives several processes, kills, other versions, damage and full disks."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ledgers import send
from relay.errors import LedgerError
from relay.message import State
from relay.messaging.ledger import Ledger

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


@pytest.mark.parametrize("change", [-1, 1])
def test_a_ledger_of_another_relay_is_refused(tmp_path: Path, change: int) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        send(ledger, TEAM, "Alice", ["Bob"], "old")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {Ledger.schema.version + change}")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"was written by another relay\. Upgrade relay, or move it away"):
        Ledger(path)
    assert path.read_bytes() == before


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
