"""A session on a full disk: the agent keeps running, and the session recovers once there is space."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from session.fake_agent import FakeAgent, messages
from session.test_session_replaced import entry, replaced
from support import Relay, processes_of, wait_until


@pytest.fixture
def relay(home: Path) -> Iterator[Relay]:
    """Yield the `relay` command in a home on a small separate disk."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", home], check=False).returncode:
        pytest.skip("a full disk: this user may not mount one")
    made = Relay(home)
    yield made
    (home / "filler").unlink(missing_ok=True)
    made("stop", "--all", "--now", check=False)
    made("broker", "stop", check=False)
    wait_until(lambda: not processes_of(home), message=lambda: str(processes_of(home)))
    subprocess.run(["umount", "-l", home], check=True)
    for folder in home.parent.glob(f"{home.name}-*"):
        shutil.rmtree(folder)


def fill(home: Path) -> None:
    """Fill the disk to the last byte."""
    with open(home / "filler", "ab", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while filler.write(bytes(size)):
                    pass
            except OSError:
                continue


def agent(relay: Relay, name: str) -> FakeAgent:
    """Return an agent whose own files are on another disk."""
    made = FakeAgent(relay, name)
    made.folder = relay.home.with_name(f"{relay.home.name}-{name}")
    made.folder.mkdir()
    return made.wrap()


def test_a_session_replaced_while_the_disk_is_full_loses_no_directive_silently(
    relay: Relay, home: Path
) -> None:
    """Earlier directives do not run again, and each new one runs or is reported."""
    bob, alice = (agent(relay, name) for name in ("Bob", "Alice"))
    alice.say("@relay:Bob before")
    bob.receives(" before ")
    wait_until(lambda: [m["state"] for m in messages(relay)] == ["injected"])
    before = entry(relay)
    fill(home)
    os.kill(before["session_pid"], signal.SIGKILL)
    alice.say("@relay:Bob during")
    after = replaced(relay, before)
    assert after["agent_pid"] == before["agent_pid"]
    (home / "filler").unlink()
    wait_until(lambda: entry(relay)["bus"] == "connected")  # until then, messages are refused and reported
    alice.say("@relay:Bob afterwards")
    bob.receives(" afterwards ")
    found = [body for _, body in bob.texts()]
    assert found in (["before", "during", "afterwards"], ["before", "afterwards"])
    if "during" not in found:
        alice.receives("message ledger")
    relay("reload", "Alice")
    relay("send", "--wait", "30", "Alice", "well")
    assert [body for _, body in bob.texts()] == found
    written = [*home.glob("state/*.jsonl"), *home.glob("state/recordings/**/*.cast")]
    assert {path.name for path in written} >= {"events.jsonl", "audit.jsonl"}
    for path in written:
        for line in path.read_text().splitlines():
            assert not line.strip() or json.loads(line), "no entry is torn; a withdrawn one is blank"
