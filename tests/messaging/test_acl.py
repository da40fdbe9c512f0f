"""The access lists that relay writes, and its checks of a broker's access list, on real brokers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import aiomqtt
import pytest
from clients import Agent, adopt, far_from, running

from guarded import GuardedMosquitto
from ledgers import in_ledger, post
from relay import names
from relay.errors import BrokerError
from relay.home import Home
from relay.message import State
from relay.transport import acl, attack, broker, mqtt
from relay.transport.credentials import Credentials, Login
from relay.transport.endpoint import Endpoint, endpoints
from relay.transport.probe import probe
from relay.transport.probe_result import CLAIMS, Finding
from support import eventually, wait_until

ROOT = Path(__file__).parents[2]

ALICE = Credentials("default", "alice", "alice's password")
BOB = Credentials("default", "bob~b", "bob's: password")
CAROL = Credentials("web", "carol", "carol's password")
TEAM = [ALICE, BOB, CAROL]
PASSWORDS = acl.mosquitto_passwords(TEAM)


@pytest.fixture(autouse=True)
def one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for a cluster's nodes, which may deliver out of order; these brokers have one node."""
    monkeypatch.setattr(attack, "SETTLE_SECONDS", 0.0)


def check(url: str, agents: list[Credentials] = TEAM, *, native: int = 1) -> dict[str, tuple[Finding, str]]:
    """Return the results of all checks of the broker at `url`, by their keys."""
    rows = asyncio.run(probe(endpoints(url), agents, native=native))
    assert [row.key for row in rows] == [key for key in CLAIMS if key in {row.key for row in rows}]
    return {row.key: (row.status, row.detail) for row in rows}


def broken(rows: dict[str, tuple[Finding, str]]) -> set[str]:
    return {key for key, (verdict, _) in rows.items() if verdict is Finding.BROKEN}


def test_every_check_passes_on_mosquitto_with_relays_access_list(tmp_path: Path) -> None:
    with GuardedMosquitto(tmp_path, acl.mosquitto(TEAM), PASSWORDS) as mosquitto:
        rows = check(mosquitto.url)
    assert {key: verdict for key, (verdict, _) in rows.items()} == dict.fromkeys(CLAIMS, Finding.HOLDS), rows


def test_agents_communicate_under_relays_access_list(home: Home, tmp_path: Path) -> None:
    agents = [broker.credentials(home, "default", name) for name in ("Alice", "Bob.B")]
    files = acl.mosquitto(agents), acl.mosquitto_passwords(agents)

    async def scenario(url: str) -> None:
        far = far_from(home)
        await asyncio.to_thread(adopt, far, agents[1])
        async with (
            running(Agent(home, "Alice", url=url)) as alice,
            running(Agent(far, "Bob.B", url=url)) as bob,
        ):
            await alice.sees("Bob.B")
            await alice.send("Bob.B", "within its rights")
            assert [m.body for m in await bob.receive()] == ["within its rights"]

    with GuardedMosquitto(tmp_path / "mosquitto", *files) as mosquitto:
        asyncio.run(scenario(mosquitto.url))


def test_a_refused_login_is_shown_as_the_reason_that_messages_wait(home: Home, tmp_path: Path) -> None:
    """The user has no session that could report it; the home's other agents continue."""
    agents = [broker.credentials(home, "default", name) for name in ("Alice", "Bob")]
    files = acl.mosquitto(agents), acl.mosquitto_passwords(agents)

    async def scenario(url: str) -> None:
        far = far_from(home)
        await asyncio.to_thread(adopt, far, agents[1])
        async with (
            running(Agent(home, "Alice", url=url)) as alice,
            running(Agent(far, "Bob", url=url)) as bob,
        ):
            await alice.sees("Bob")
            await in_ledger(home, lambda ledger: post(ledger, "default", names.PERSON, "Bob", "from me"))
            alice.notify()

            async def explained() -> bool:
                (waits,) = await alice.ledger()
                return "credentials" in (waits.detail or "") and waits.state is State.QUEUED

            await eventually(explained)
            await alice.send("Bob", "from Alice")
            assert [m.body for m in await bob.receive()] == ["from Alice"]

    with GuardedMosquitto(tmp_path / "mosquitto", *files) as mosquitto:
        asyncio.run(scenario(mosquitto.url))


def test_every_check_of_rights_fails_without_an_access_list(tmp_path: Path) -> None:
    with GuardedMosquitto(tmp_path, None, PASSWORDS) as mosquitto:
        rows = check(mosquitto.url)
    assert broken(rows) == {"publish", "inbox", "wildcard", "presence", "will", "team", "internals"}, rows
    with GuardedMosquitto(tmp_path / "open", None, None) as mosquitto:
        rows = check(mosquitto.url)
    assert {"anonymous", "publish", "inbox"} <= broken(rows)


OWN_INBOX = "read relay/v1/default/agents/alice/inbox/+"
AS_ALICE = "write relay/v1/default/agents/+/inbox/alice"

# Faults of a list: a text in it, its replacement, and the checks that detect it.
WEAKNESSES = {
    "writes under any name": (AS_ALICE, "write relay/v1/default/agents/+/inbox/+", {"publish", "will"}),
    "writes as one other": (
        AS_ALICE,
        f"{AS_ALICE}\ntopic write relay/v1/default/agents/+/inbox/bob~b",
        {"publish", "will"},
    ),
    "announces anybody": (
        "write relay/v1/default/presence/alice",
        "write relay/v1/default/presence/+",
        {"presence", "will"},
    ),
    "reads another's inbox": (OWN_INBOX, "read relay/v1/default/agents/+/inbox/+", {"inbox", "wildcard"}),
    "reads all of its team": (OWN_INBOX, "read relay/v1/default/#", {"inbox", "wildcard"}),
    "sees the other team": (
        "user web/carol\n",
        "user web/carol\ntopic read relay/v1/default/presence/+\n",
        {"team"},
    ),
    "writes to the other team": (
        "user web/carol\n",
        "user web/carol\ntopic write relay/v1/default/agents/+/inbox/carol\n",
        {"team"},
    ),
    "reads the broker's own": (
        "user default/alice\n",
        "user default/alice\ntopic read $SYS/#\n",
        {"internals"},
    ),
    "a line for everybody": (
        "user default/alice\n",
        "pattern readwrite relay/#\nuser default/alice\n",
        {"publish", "inbox", "wildcard", "presence", "will", "team"},
    ),
}


@pytest.mark.parametrize("weakness", WEAKNESSES)
def test_each_weakness_fails_exactly_its_checks(tmp_path: Path, weakness: str) -> None:
    old, new, rows = WEAKNESSES[weakness]
    text = acl.mosquitto(TEAM)
    assert text.count(old) == 1
    with GuardedMosquitto(tmp_path, text.replace(old, new), PASSWORDS) as mosquitto:
        found = check(mosquitto.url)
    assert broken(found) == rows, found


def grants(user: str) -> list[str]:
    block = acl.mosquitto(TEAM).partition(f"user {user}\n")[2]
    return block.partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("line", grants("default/alice"))
def test_each_missing_right_is_reported(tmp_path: Path, line: str) -> None:
    text = acl.mosquitto(TEAM)
    assert line in text
    with GuardedMosquitto(tmp_path, text.replace(line + "\n", "", 1), PASSWORDS) as mosquitto:
        verdict, detail = check(mosquitto.url)["own"]
    assert verdict is Finding.BROKEN
    assert "alice" in detail


def test_the_checks_leave_nothing_behind(tmp_path: Path) -> None:
    """Even if every attack succeeds, no retained message and no session remains."""

    async def remaining(url: str) -> tuple[list[str], bytes]:
        endpoint = Endpoint.of(url)
        retained, sessions, reports = [], b"", 0
        async with aiomqtt.Client(
            endpoint.host, endpoint.port, username=ALICE.user, password=ALICE.password
        ) as client:
            for topic in ("#", "$SYS/broker/uptime", "$SYS/broker/clients/disconnected"):
                await client.subscribe(topic)
            async for message in client.messages:
                topic = str(message.topic)
                if not topic.startswith("$SYS"):
                    retained.append(topic)
                elif topic.endswith("disconnected"):
                    sessions = bytes(message.payload)
                elif not message.retain and (reports := reports + 1) == 2:  # its statistics are current
                    break
        return retained, sessions

    with GuardedMosquitto(tmp_path, None, PASSWORDS, "sys_interval 1") as mosquitto:
        assert "publish" in broken(check(mosquitto.url))
        assert asyncio.run(remaining(mosquitto.url)) == ([], b"0")


def test_a_shared_login_fails_the_checks_of_rights(tmp_path: Path) -> None:
    shared = Credentials("the", "team", "secret")
    with GuardedMosquitto(tmp_path, None, acl.mosquitto_passwords([shared])) as mosquitto:
        rows = check(mosquitto.url.replace("//", "//the%2Fteam:secret@"), [])
    assert {"publish", "inbox", "presence", "will", "session", "team"} <= broken(rows)
    assert rows["publish"][1].startswith("all log in as the user in the URL")
    assert rows["anonymous"][0] is Finding.HOLDS


def test_a_single_team_leaves_the_separation_of_teams_unproved(tmp_path: Path) -> None:
    with GuardedMosquitto(tmp_path, acl.mosquitto(TEAM), PASSWORDS) as mosquitto:
        rows = check(mosquitto.url, [ALICE, BOB])
    assert rows["team"][0] is Finding.UNPROVED
    assert not broken(rows)


def test_a_refused_login_and_an_unreachable_broker_are_reported(tmp_path: Path) -> None:
    with GuardedMosquitto(tmp_path, acl.mosquitto(TEAM), acl.mosquitto_passwords([ALICE])) as mosquitto:
        rows = check(mosquitto.url)
        assert broken(rows) == {"login"}
        assert "refuses the login of default/bob" in rows["login"][1]
        url = mosquitto.url
    rows = check(url)
    assert broken(rows) == {"reach"}
    assert "no connection to the broker" in rows["reach"][1]
    assert rows["inbox"] == (Finding.UNPROVED, "the broker does not work.")


class NatsServer:
    """A user's own nats-server, whose configuration includes the file that relay writes."""

    def __init__(self, directory: Path, users: str) -> None:
        with contextlib.ExitStack() as stack:
            probes = [stack.enter_context(socket.socket()) for _ in range(2)]
            for probe_ in probes:
                probe_.bind(("127.0.0.1", 0))
            self.native, port = (int(probe_.getsockname()[1]) for probe_ in probes)
        self.url = f"mqtt://127.0.0.1:{port}"
        (directory / "relay.conf").write_text(users)
        (directory / "nats-server.conf").write_text(
            f"server_name: team\nhost: 127.0.0.1\nport: {self.native}\n"
            f'jetstream: {{ store_dir: "{directory}/data" }}\n'
            f"mqtt: {{ host: 127.0.0.1, port: {port} }}\ninclude relay.conf\n"
        )
        with open(directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                [broker.binary(), "-c", directory / "nats-server.conf"], stderr=log, stdout=log
            )
        wait_until(lambda: b"Server is ready" in (directory / "log").read_bytes())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Callable[[str], NatsServer]]:
    with contextlib.ExitStack() as stack:

        def start(users: str) -> NatsServer:
            server = NatsServer(tmp_path, users)
            stack.callback(server.stop)
            return server

        yield start


def test_every_check_passes_on_nats_with_relays_users(nats: Callable[[str], NatsServer]) -> None:
    server = nats(acl.nats(TEAM))
    rows = check(server.url, native=server.native)
    assert {key: verdict for key, (verdict, _) in rows.items()} == dict.fromkeys(CLAIMS, Finding.HOLDS), rows
    assert "refuses them all" in rows["native"][1]


def test_a_native_port_that_admits_agents_is_reported(nats: Callable[[str], NatsServer]) -> None:
    server = nats(re.sub(r'"allowed_connection_types": \[[^]]*\],', "", acl.nats(TEAM)))
    assert broken(check(server.url, native=server.native)) == {"native"}


def test_the_example_files_match_what_relay_writes() -> None:
    """The examples are config/mosquitto/acl, config/mosquitto/passwords and config/nats/relay.conf."""
    team = [Credentials("default", name, f"{name}'s password") for name in ("alice", "bob", "you")]
    config = ROOT / "config"
    assert (config / "mosquitto" / "acl").read_text() == acl.mosquitto(team)
    assert (config / "nats" / "relay.conf").read_text() == acl.nats(team)
    json.loads((config / "nats" / "relay.conf").read_text().partition("authorization: ")[2])
    users = re.findall(r"^([^:]+):\$7\$\d+\$", (config / "mosquitto" / "passwords").read_text(), re.MULTILINE)
    assert users == [each.user for each in team]


def test_an_unanswered_login_is_not_reported_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        endpoint = Endpoint.of(f"mqtt://127.0.0.1:{mute.getsockname()[1]}")

        async def scenario() -> None:
            with pytest.raises(BrokerError, match="does not answer like an MQTT broker within"):
                await mqtt.accepts(endpoint, Login("nobody"))

        asyncio.run(scenario())
