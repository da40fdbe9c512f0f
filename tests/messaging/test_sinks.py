"""What goes to the sinks of the inbox, at real servers and programs; and their settings."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_server import Server, serving

from relay.home import Home
from relay.messaging import sinks
from relay.messaging.sinks import Sinks
from relay.messaging.user_inbox import Item
from relay.redaction import Redactor

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
ITEM = Item(
    "0123456789abcdef", "question", "Bob", "default", 1.5, f"Push with\n{TOKEN}?", False, "relay answer Bob"
)
SECRET = "a secret of the webhook"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def push(settings: Sinks, sink: str, item: Item = ITEM) -> str:
    return asyncio.run(sinks.push(settings, sink, item, Redactor()))


def test_ntfy_gets_title_and_text_and_the_token(server: Server) -> None:
    assert push(Sinks(ntfy_topic="mine", ntfy_url=server.url, ntfy_token="tk_1"), "ntfy") == ""
    assert server.json["topic"] == "mine" and server.json["title"] == "Bob has a question"
    assert server.json["message"].startswith("Push with\n") and server.json["message"].endswith(
        "relay answer Bob"
    )
    ((path, headers, _),) = server.got
    assert (path, headers["authorization"]) == ("/", "Bearer tk_1")


@pytest.mark.parametrize(
    ("secret", "key"),
    [(SECRET, SECRET.encode()), ("whsec_" + base64.b64encode(b"k" * 24).decode(), b"k" * 24)],
)
def test_a_webhook_is_signed(server: Server, secret: str, key: bytes) -> None:
    """As Standard Webhooks says: id, time and body, so that nobody can repeat or change it."""
    assert push(Sinks(webhook_url=f"{server.url}/hook", webhook_secret=secret), "webhook") == ""
    ((path, headers, body),) = server.got
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    version, _, signature = headers["webhook-signature"].partition(",")
    assert (path, version, headers["webhook-id"]) == ("/hook", "v1", ITEM.id)
    assert base64.b64decode(signature) == hmac.new(key, signed, hashlib.sha256).digest()
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    assert {key: server.json[key] for key in ("kind", "name", "team", "next", "title")} == {
        "kind": "question",
        "name": "Bob",
        "team": "default",
        "next": "relay answer Bob",
        "title": "Bob has a question",
    }


def test_a_command_gets_the_text_on_its_standard_input(tmp_path: Path) -> None:
    command = ("sh", "-c", 'cat > "$0"', str(tmp_path / "got"))
    assert push(Sinks(command=command), "command") == ""
    assert (tmp_path / "got").read_text().splitlines()[:2] == ["Bob has a question", "Push with"]


def test_no_sink_gets_a_secret(server: Server, tmp_path: Path) -> None:
    settings = Sinks(
        ntfy_topic="mine",
        ntfy_url=server.url,
        webhook_url=server.url,
        webhook_secret=SECRET,
        command=("sh", "-c", 'cat > "$0"', str(tmp_path / "got")),
    )
    for sink in ("ntfy", "webhook", "command"):
        assert push(settings, sink) == ""
    seen = json.dumps(server.got) + (tmp_path / "got").read_text()
    assert TOKEN not in seen and seen.count("[secret: github-token]") == 3 and SECRET not in seen


def test_a_failure_says_why(server: Server) -> None:
    server.status = 503
    assert "503" in push(Sinks(ntfy_topic="mine", ntfy_url=server.url), "ntfy")
    gone = Sinks(ntfy_topic="mine", ntfy_url="http://127.0.0.1:1")
    assert "refused" in push(gone, "ntfy")
    assert push(Sinks(command=("sh", "-c", "echo no pager >&2; exit 3")), "command") == "no pager"
    assert "cannot be run" in push(Sinks(command=("/nonexistent",)), "command")


def test_a_redirect_is_not_followed(server: Server) -> None:
    """It would take the token to another server."""
    server.status = 307
    assert "307" in push(Sinks(ntfy_topic="mine", ntfy_url=server.url, ntfy_token="tk_1"), "ntfy")
    assert len(server.got) == 1


def test_a_sink_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "SECONDS", 0.1)
    assert "no answer" in push(Sinks(command=("sleep", "60")), "command")


def load(tmp_path: Path, text: str) -> tuple[Sinks, list[str]]:
    home = Home.from_env({"RELAY_HOME": str(tmp_path / "home")}).ensure()
    (home.config / "relay.toml").write_text(text)
    return sinks.load(home, tmp_path)


def test_the_settings_are_those_of_the_users_own_file(tmp_path: Path) -> None:
    """No project's file, trusted or not, may send the user's items elsewhere, or run a command for each."""
    (tmp_path / "relay.toml").write_text('[inbox]\ncommand = ["evil"]\n')
    found, notices = load(tmp_path, '[inbox]\ndesktop = false\nntfy_topic = "1-mine"\n')
    assert found == Sinks(desktop=False, ntfy_topic="1-mine") and found.names == ["ntfy"]
    (notice,) = notices
    assert str(tmp_path / "relay.toml") in notice and "only your own" in notice


MISTAKES = {
    'ntfy_topic = "a/b"': "up to 64 letters",
    'ntfy_url = "ftp://x"': "begins with https://",
    'webhook_url = "https://x"': "needs a webhook_secret",
    'webhook_secret = "short"': "at least 16",
    'webhook_secret = "whsec_!"': "not base64",
    'command = "page me"': "must be a list",
    'ntfy = "x"': "unknown setting 'ntfy'",
}


def test_a_mistake_says_what_to_do(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for line, expected in MISTAKES.items():
        with subtests.test(line):
            found, notices = load(tmp_path, f"[inbox]\n{line}\n")
            assert found == Sinks() and len(notices) == 1
            assert "relay.toml:2: " in notices[0] and expected in notices[0]
