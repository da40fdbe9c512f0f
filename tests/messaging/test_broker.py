"""The embedded broker: one per home, started on demand, ended when nobody uses it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.errors import BrokerError
from relay.home import Home, private_directory
from relay.storage import locks
from relay.storage.locks import is_held, open_lock, try_lock
from relay.transport import broker, broker_supervisor
from relay.transport.endpoint import Endpoint
from support import many, wait_until


def python(home: Home, code: str) -> subprocess.Popen[str]:
    """Run `code` in a separate process and session, with `home` in its environment."""
    root = Path(home.state_dir).parent
    return subprocess.Popen(
        [sys.executable, "-c", f"from relay.transport import broker\nfrom relay.home import Home\n{code}"],
        env={**os.environ, "RELAY_HOME": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def gone(pid: int) -> bool:
    """Return whether process `pid` has ended; nobody may have reaped it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return False
        return True
    return state == "Z"


def supervisor_of(home: Home) -> int:
    return int(json.loads((home.broker / "endpoint.json").read_text())["supervisor"])


@pytest.mark.parametrize("keep", [False, True])
def test_a_broker_with_settings_of_another_version_is_replaced(
    home: Home, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """nats-server reloads its users, but not, for example, the folder of its store."""
    render = broker._render

    def former(*arguments: Any) -> str:
        settings = json.loads(render(*arguments))
        return json.dumps({**settings, "jetstream": {**settings["jetstream"], "store_dir": str(home.broker)}})

    with monkeypatch.context() as patch:
        patch.setattr(broker, "_render", former)
        before = broker.ensure(home, keep=keep)
    endpoint, credentials = broker.admit(home, "default", "Alice")
    assert endpoint.port == before.port and endpoint.pid != before.pid
    assert broker.status(home) == endpoint
    broker.greet(home)
    assert (home.broker / broker_supervisor.KEEP).exists() is keep
    assert broker.admit(home, "default", "Alice") == (endpoint, credentials)


def test_the_broker_is_started_once_and_then_reused(home: Home) -> None:
    assert broker.status(home) is None
    first = broker.ensure(home)
    assert broker.ensure(home) == first == broker.status(home)
    assert first.kind == "embedded"
    assert first.url == f"mqtt://127.0.0.1:{first.port}"
    with socket.create_connection((first.host, first.port)):
        pass


def test_many_starters_get_one_broker(home: Home) -> None:
    code = "print(broker.admit(Home.from_env(), 'default', 'agent-{}')[0].pid)"
    count = many(20)
    starters = [python(home, code.format(number)) for number in range(count)]
    pids = set()
    for starter in starters:
        out, _ = starter.communicate(timeout=60)
        assert starter.returncode == 0
        pids.add(int(out))
    status = broker.status(home)
    assert status is not None
    assert pids == {status.pid}
    assert len(list((home.broker / "credentials").glob("*.json"))) == count


def test_stop_does_not_rely_on_one_signal(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that arrives just before the supervisor sleeps does not wake it up."""
    lost: list[int] = []
    kill = os.kill

    def lossy(pid: int, number: int) -> None:
        if lost:
            kill(pid, number)
        else:
            lost.append(number)

    broker.ensure(home)
    monkeypatch.setattr(os, "kill", lossy)
    assert broker.stop(home)
    assert lost == [signal.SIGTERM]


def test_stop_leaves_no_process(home: Home) -> None:
    endpoint = broker.ensure(home)
    supervisor = supervisor_of(home)
    assert endpoint.pid is not None
    assert broker.stop(home)
    assert gone(endpoint.pid)
    wait_until(lambda: gone(supervisor))
    assert broker.status(home) is None
    assert not broker.stop(home)


def test_the_broker_survives_the_process_that_started_it(home: Home) -> None:
    starter = python(home, "print(broker.ensure(Home.from_env()).pid, flush=True)\ninput()")
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()
    status = broker.status(home)
    assert status is not None
    assert status.pid == pid


def test_the_broker_ends_after_its_last_user(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "LINGER", 0.05)
    with broker.use(home), broker.use(home):
        endpoint = broker.ensure(home)
        user = python(
            home,
            "home = Home.from_env()\n"
            "with broker.use(home):\n print(broker.ensure(home).pid, flush=True)\n input()",
        )
        assert user.stdout is not None
        assert int(user.stdout.readline()) == endpoint.pid
    assert broker.status(home) == endpoint
    user.kill()
    user.communicate()
    wait_until(lambda: broker.status(home) is None)
    wait_until(lambda: not is_held(home.broker / "supervisor.lock"))


def test_a_broker_started_by_hand_keeps_running(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "LINGER", 0.0)
    endpoint = broker.ensure(home, keep=True)
    supervisor = Path(f"/proc/{supervisor_of(home)}/stat")
    if not supervisor.exists():
        pytest.skip("needs /proc to see the supervisor run")

    def ticks() -> int:
        return sum(int(field) for field in supervisor.read_text().rpartition(")")[2].split()[11:13])

    before = ticks()
    wait_until(lambda: ticks() > before)  # by now it has found the broker unused many times
    assert broker.status(home) == endpoint
    assert broker.stop(home)


def test_a_killed_broker_is_replaced_at_the_same_port(home: Home) -> None:
    first = broker.ensure(home)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: broker.status(home) is None)
    second = broker.ensure(home)
    assert second.pid != first.pid
    assert second.port == first.port


def test_a_broker_without_a_supervisor_is_replaced(home: Home) -> None:
    first = broker.ensure(home)
    os.kill(supervisor_of(home), signal.SIGKILL)
    wait_until(lambda: not is_held(home.broker / "supervisor.lock"))
    second = broker.ensure(home)
    assert first.pid is not None
    assert second.pid != first.pid
    assert gone(first.pid)


def test_the_brokers_files_are_private(home: Home) -> None:
    broker.admit(home, "default", "Alice")
    for path in (home.broker, *home.broker.rglob("*")):
        if "jetstream" not in path.parts:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_the_port_can_be_chosen(home: Home) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert broker.ensure(home, port=port).port == port


def test_a_port_that_another_program_takes_meanwhile_is_reported(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session tries again; the next port is free."""
    with socket.create_server((broker.HOST, 0)) as other, monkeypatch.context() as patch:
        patch.setattr(broker, "_free_port", lambda _: other.getsockname()[1])
        with pytest.raises(BrokerError, match="address already in use"):
            broker.ensure(home)
    broker.ensure(home)
    assert broker.stop(home)


def test_a_port_in_use_is_an_error_with_advice(home: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BrokerError, match=r"port \d+ .* in use by another program\. Choose another port"):
            broker.ensure(home, port=other.getsockname()[1])
    assert broker.status(home) is None
    broker.ensure(home)


def test_a_failed_start_is_explained(home: Home) -> None:
    home.broker.mkdir(mode=0o700)
    (home.broker / "jetstream").write_text("not a directory")
    with pytest.raises(BrokerError, match=r"could not be started: .*broker\.log"):
        broker.ensure(home)
    assert not is_held(home.broker / "alive.lock")


@pytest.fixture
def foreground(home: Home) -> Iterator[subprocess.Popen[str]]:
    process = python(home, "import sys; sys.exit(broker.run(Home.from_env()))")
    yield process
    process.kill()
    process.communicate()


def test_a_broker_in_the_foreground_runs_until_it_is_terminated(
    home: Home, foreground: subprocess.Popen[str]
) -> None:
    wait_until(lambda: broker.status(home) is not None)
    endpoint = broker.status(home)
    with pytest.raises(BrokerError, match="already running"):
        broker.run(home)
    foreground.terminate()
    assert foreground.wait(20) == 0
    assert endpoint is not None
    assert endpoint.pid is not None
    assert gone(endpoint.pid)


@pytest.mark.parametrize(
    "url", ["", "localhost", "http://host", "mqtt://", "mqtt://host:99999", "mqtt://h/x"]
)
def test_an_invalid_broker_url_is_rejected(url: str) -> None:
    with pytest.raises(BrokerError, match="write it like mqtts://"):
        Endpoint.of(url)


def test_a_url_gives_host_port_and_login() -> None:
    endpoint = Endpoint.of("mqtts://al%40ice:s%3Acret@example.org")
    assert (endpoint.host, endpoint.port, endpoint.tls) == ("example.org", 8883, True)
    assert (endpoint.user, endpoint.password) == ("al@ice", "s:cret")
    assert endpoint.url == "mqtts://example.org:8883"
    assert "s:cret" not in repr(endpoint)


SLOW = """#!/bin/sh
echo $PPID > "$0.new"
mv "$0.new" "$0.supervisor"
exec sleep 1000
"""


def test_a_stale_endpoint_file_is_ignored(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier broker was killed, and its pid reused; the starter of the next one is killed, too."""
    broker.ensure(home)
    written = json.loads((home.broker / "endpoint.json").read_text())
    assert broker.stop(home)
    slow, supervisor = tmp_path / "slow", tmp_path / "slow.supervisor"
    slow.write_text(SLOW)
    slow.chmod(0o700)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        stale = {**written, "pid": other.pid, "supervisor": other.pid}
        (home.broker / "endpoint.json").write_text(json.dumps(stale))
        code = "from pathlib import Path\nbroker.binary = lambda: Path({!r})\nbroker.ensure(Home.from_env())"
        starter = python(home, code.format(str(slow)))
        wait_until(supervisor.exists)
        starter.kill()
        starter.communicate()
        assert broker.status(home) is None
        monkeypatch.setattr(broker, "_STOP_SECONDS", 0.0)
        with contextlib.suppress(BrokerError):  # its pid is not known yet
            broker.stop(home)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(supervisor.read_text()), signal.SIGTERM)
        wait_until(lambda: not is_held(home.broker / "alive.lock"))
        other.communicate(b"\n")
    assert other.returncode == 0


def test_a_status_check_is_not_mistaken_for_a_broker(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A status check holds the broker's lock for a moment."""
    private_directory(home.broker)
    checking = open_lock(home.broker / "alive.lock")
    assert try_lock(checking, shared=True)
    monkeypatch.setattr(locks.time, "sleep", lambda _: os.close(checking))  # at the first failed try
    monkeypatch.setattr(broker, "_stop", lambda home: pytest.fail("stopped a status check"))
    monkeypatch.setattr(broker, "LINGER", 0.0)
    assert broker.ensure(home).kind == "embedded"
