"""Credentials are created on first use, private and stable, and give each agent one mailbox."""

from __future__ import annotations

import asyncio
import json
import stat
from dataclasses import asdict
from pathlib import Path

import aiomqtt
import pytest
from clients import Agent, adopt, running

from guarded import GuardedMosquitto
from relay.errors import BrokerError
from relay.home import Home
from relay.message import Message
from relay.messaging.envelope import Envelope, encode
from relay.transport import acl, broker, topics
from relay.transport.credentials import Credentials, CredentialStore, for_endpoint, parse
from relay.transport.endpoint import Endpoint

ALICE = Credentials("default", "alice", "secret")


def test_credentials_are_distinct_and_stable(home: Home) -> None:
    _, alices = broker.admit(home, "default", "Alice")
    bobs = broker.credentials(home, "default", "Bob")
    others = broker.credentials(home, "other", "Alice")
    assert broker.admit(home, "DEFAULT", "alice")[1] == alices
    with broker.credential_store(home) as store:
        assert store.find("default", "ALICE") == alices
        assert list(store.all()) == [alices, bobs, others]
    assert len({c.password for c in (alices, bobs, others)}) == 3
    assert len({c.client_id for c in (alices, bobs, others)}) == 3


def test_credentials_are_private_and_never_shown(home: Home) -> None:
    alices = broker.credentials(home, "default", "Alice")
    (path,) = (home.broker / "credentials").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert alices.password not in repr(alices)
    assert alices.password not in repr(for_endpoint(Endpoint.of("mqtt://host"), alices))
    assert alices.client_id not in repr(for_endpoint(Endpoint.of("mqtt://host"), alices))


def test_a_rewritten_credentials_file_is_private_again(tmp_path: Path) -> None:
    """A user may have made it readable by all."""
    store = CredentialStore(tmp_path)
    store.put(ALICE)
    (path,) = tmp_path.iterdir()
    path.chmod(0o644)
    store.put(ALICE)
    assert [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()] == [0o600]
    assert store.get("default", "Alice") == ALICE


def test_a_url_without_a_login_gets_the_agents_own() -> None:
    login = for_endpoint(Endpoint.of("mqtts://host"), ALICE)
    assert (login.user, login.password) == ("default/alice", "secret")
    assert login.client_id == ALICE.client_id


@pytest.mark.parametrize(
    ("url", "password"), [("mqtt://team:shared@host", "shared"), ("mqtt://team@host", None)]
)
def test_a_login_in_the_url_is_used_unchanged(url: str, password: str | None) -> None:
    """relay never combines an agent's own password with another user name."""
    login = for_endpoint(Endpoint.of(url), ALICE)
    assert (login.user, login.password) == ("team", password)


def test_an_agent_has_one_mailbox_per_login() -> None:
    """In every home: with a shared login, a home's own credentials do not matter."""
    shared, other = Endpoint.of("mqtt://team:shared@host"), Endpoint.of("mqtt://team:other@host")
    elsewhere = Credentials("default", "alice", "made elsewhere")
    bob = Credentials("default", "bob", "secret")
    assert for_endpoint(shared, ALICE).client_id == for_endpoint(shared, elsewhere).client_id
    ids = {
        for_endpoint(shared, ALICE).client_id,
        for_endpoint(other, ALICE).client_id,
        for_endpoint(shared, bob).client_id,
        ALICE.client_id,
        elsewhere.client_id,
    }
    assert len(ids) == 5
    assert not any(word in id for id in ids for word in ("alice", "secret", "shared"))


def test_mail_follows_an_agent_to_another_home(home: Home, tmp_path: Path) -> None:
    """What the broker keeps for Bob reaches him in the other home: both share one mailbox."""
    far = Home.from_env({"RELAY_HOME": str(tmp_path / "far")}).ensure()
    shared = Credentials("the", "team", "shared")
    waiting = Envelope(Message("id", "Carol", "Bob", "while he was away", 1.0), "elsewhere", 1, 1)

    async def scenario(server: GuardedMosquitto) -> None:
        url = server.url.replace("//", "//the%2Fteam:shared@")
        async with running(Agent(home, "Bob", url=url)):
            pass
        async with aiomqtt.Client("127.0.0.1", server.port, username=shared.user, password="shared") as carol:
            await carol.publish(topics.inbox("default", "Bob", "Carol"), encode(waiting), qos=1)
        async with running(Agent(far, "Bob", url=url)) as bob:
            assert [m.body for m in await bob.receive()] == ["while he was away"]

    with GuardedMosquitto(tmp_path / "mosquitto", None, acl.mosquitto_passwords([shared])) as mosquitto:
        asyncio.run(scenario(mosquitto))


def test_another_homes_credentials_can_be_adopted_and_dismissed(home: Home) -> None:
    broker.admit(home, "default", "Alice")
    adopt(home, ALICE)
    assert broker.admit(home, "default", "Alice")[1] == ALICE
    config = (home.broker / "broker.json").read_text()
    assert json.loads(config)["authorization"]["users"][1]["password"] == "secret"
    with broker.credential_store(home) as store:
        store.remove("default", "Alice")
        assert store.find("default", "Alice") is None
    assert "secret" not in (home.broker / "broker.json").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"team": "a/b"},
        {"team": "a.b"},
        {"name": "Alice"},
        {"name": "a\nuser root"},
        {"name": "../../x"},
        {"name": ""},
        {"name": 1},
        {"password": ""},
        {"password": None},
    ],
)
def test_invalid_credentials_are_rejected(change: dict[str, object]) -> None:
    """Credentials name a file and appear in access lists."""
    value = asdict(ALICE)
    assert parse(value) == ALICE
    assert parse({**value, "user": "ignored", "client_id": "of an older relay"}) == ALICE
    assert parse({**value, "name": "you"}).name == "you"
    with pytest.raises(ValueError):
        parse({**value, **change})


@pytest.mark.parametrize("text", ["{", pytest.param("[" * 100_000, id="nested too deeply")])
def test_an_unreadable_credentials_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "default.alice.json").write_text(text)
    with pytest.raises(BrokerError, match=r"cannot be read .* Delete that file"):
        CredentialStore(tmp_path).get("default", "Alice")
