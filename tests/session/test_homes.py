"""Homes and working folders may have any name that the file system allows, in any locale, with any umask."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.hooked import Claude
from cli.test_service import Systemd
from relay.control.sessions import live
from relay.home import Home
from session.fake_agent import FakeAgent, messages, ps
from session.test_session_replaced import entry
from supervision.repositories import Repo, needs_git
from support import Relay, wait_until

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale in which Python itself would decode no other byte of a path."""

SHELL, CJK = "$HOME;`x`&|*", "\u5bb6"
NOT_UTF8, NEWLINE = os.fsdecode(b"caf\xe9"), "a\nb"

PLACES = {
    "spaces, accent, emoji, quotes, shell": (f'my  jos\u00e9 \U0001f3e1 it\'s "a\\u00e9" {SHELL}', {}, 0o000),
    "CJK, C locale": (CJK, ASCII, 0o022),
    "not UTF-8": (NOT_UTF8, {}, 0o077),
    "newline": (NEWLINE, {}, 0o002),
}
"""The name of the home and of the folder, the environment, and the umask."""

INDIRECT = ["home", "umask"]


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize(("home", "env", "umask"), PLACES.values(), ids=PLACES, indirect=INDIRECT)
def test_agents_talk_from_any_home_and_folder(relay: Relay, env: dict[str, str], umask: int) -> None:
    """C2, C3. What they say is in their log and their recording, and only their user can read it."""
    relay.environment |= env
    folder = relay.home / f"work {relay.home.name}"
    folder.mkdir()
    talks(relay, folder)
    assert "FAIL" not in relay("doctor", cwd=folder, check=False).stdout
    for path in (relay.home / "state").rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISLNK(mode) or not mode & 0o077, f"{path}: {oct(mode)}"


def test_agents_talk_from_a_linked_home_and_a_long_folder(relay: Relay, tmp_path: Path) -> None:
    (relay.home / "real").mkdir()
    (relay.home / "link").symlink_to("real")
    relay.environment["RELAY_HOME"] = str(relay.home / "link")
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    (tmp_path / "here").symlink_to(folder)
    talks(relay, tmp_path / "here", resolved=folder)
    relay("stop", "--all")
    relay("broker", "stop")


def talks(relay: Relay, folder: Path, resolved: Path | None = None) -> None:
    """Check that an agent in `folder` gets a message, and that its words are kept."""
    alice = FakeAgent(relay, "Alice").wrap(cwd=folder)
    wait_until(lambda: entry(relay)["bus"].startswith("connected"), message=alice.log)
    relay("send", "Alice", "hello", "--wait", "30", cwd=folder)
    alice.receives("hello")
    assert ps(relay)[0]["cwd"] == str(resolved or folder)
    assert [message["body"] for message in messages(relay)] == ["hello"]
    alice.say("for the record")
    (log,) = Home.from_env(relay.environment).recordings.rglob("*.log.jsonl")
    wait_until(lambda: "for the record" in log.read_text(), message=alice.log)
    assert "for the record" in relay("logs", "Alice").stdout
    wait_until(lambda: "for the record" in relay("replay", "Alice").stdout, message=alice.log)


@needs_git
@pytest.mark.parametrize(
    ("home", "env"), [(SHELL, {}), (NOT_UTF8, {}), (CJK, ASCII)], ids=["shell", "not UTF-8", "C locale"],
    indirect=["home"],
)  # fmt: skip
def test_an_agent_resumes_in_its_worktree_in_any_folder(
    relay: Relay, env: dict[str, str], tmp_path: Path
) -> None:
    repository = Repo(relay.home / f"repo {relay.home.name}")
    relay.environment |= env | {k: v for k, v in repository.env.items() if k.startswith("GIT_")}
    worktree = relay.home / f"{repository.path.name}-worktrees" / "fix"
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text('{"type":"user","message":{"role":"user","content":"do it"}}\n')
    ann = Claude(relay).wrap(cwd=repository.path, options=("--worktree", "fix"))
    ann.fire("SessionStart", source="startup", session_id="11111111-aaaa", transcript_path=str(transcript))
    assert ps(relay)[0]["cwd"] == str(worktree)
    ann.exit()
    wait_until(lambda: not live(Home.from_env(relay.environment)))
    (ann.folder / "strings").unlink()
    relay("resume", "Ann", env={"AGENT_FOLDER": str(ann.folder)})
    wait_until((ann.folder / "strings").exists)
    assert "11111111-aaaa" in (ann.folder / "arguments").read_text()
    assert ps(relay)[0]["cwd"] == str(worktree)


@pytest.mark.parametrize(
    ("home", "env", "problem"),
    [(SHELL, {}, ""), (CJK, ASCII, ""), (NOT_UTF8, {}, "is not UTF-8"), (NEWLINE, {}, "a control character")],
    ids=["shell", "C locale", "not UTF-8", "newline"],
    indirect=["home"],
)
def test_a_service_starts_a_fleet_in_any_folder_that_a_unit_can_name(
    relay: Relay, env: dict[str, str], problem: str
) -> None:
    systemd = Systemd(relay)
    relay.environment |= env
    folder = relay.home / f"fleet {relay.home.name}"
    folder.mkdir()
    (folder / "relay.toml").write_text('[fleet]\nteam = "web"\n[agents.A]\nrun = "cat"\n')
    relay("trust", "relay.toml", cwd=folder)
    done = relay("service", "install", cwd=folder, check=False)
    assert problem in done.stderr and done.returncode == (1 if problem else 0), done.stderr
    assert ("relay-web.service" in systemd.files()) is not bool(problem)
    services = json.loads(relay("service", "status", "--json").stdout)["services"]
    assert [service["problems"] for service in services] == ([] if problem else [[]])
