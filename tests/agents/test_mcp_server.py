"""relay's MCP server in an agent, for one run: what it adds, and when it leaves the agent as it is."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agents.node import needs_node, printed
from relay.agents import kinds, mcp_server
from relay.agents.hook_setup import Prepared, prepare
from relay.agents.kinds import claude, gemini
from relay.home import Home
from relay.mcp.tools import TOOLS
from relay.session.bridge import bridged
from relay.session.options import Options
from support import Relay

STDIO = {"command": sys.executable, "args": mcp_server.ARGUMENTS}

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.332"),
    "codex": ("@openai/codex", "0.171.0"),
    "pi": ("@earendil-works/pi-coding-agent", "1.6.0"),
}


class Place:
    """A user's home, a project, and installed agents that only have a version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = folder / "user"
        self.project = folder / "project"
        self.run = folder / "run"
        (self.project / ".git").mkdir(parents=True)
        self.user.mkdir()
        self.env = {"HOME": str(self.user), "PWD": str(self.project), "RELAY_NAME": "Alice"}
        self.env["PATH"] = str(folder / "bin")
        for kind in PACKAGES:
            self.install(kind)

    def install(self, kind: str, version: str = "") -> None:
        name, newest = PACKAGES[kind]
        package = self.folder / kind
        write_json(package / "package.json", {"name": name, "version": version or newest})
        (package / "cli.js").touch(mode=0o755)
        link = self.folder / "bin" / kind
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(package / "cli.js")

    def prepare(self, kind: str, *arguments: str, mcp: bool = True, **env: str) -> Prepared:
        socket = str(self.folder / "s.sock")
        return prepare(kind, [kind, *arguments], {**self.env, **env}, str(self.run), socket, mcp=mcp)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.chdir(found.project)
    monkeypatch.setattr(claude, "_SYSTEM", tmp_path / "etc")
    monkeypatch.setattr(gemini, "_only_root_writes", lambda folder: True)
    return found


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_the_tools_that_need_no_permission_are_relays_and_change_no_agent() -> None:
    names = {tool.name for tool in TOOLS}
    assert names - set(mcp_server.UNASKED) == {"look", "forget", "spawn", "release"}
    assert set(mcp_server.UNASKED) < names


@pytest.mark.parametrize("kind", [name for name in kinds.hooked() if name != "relay"])
def test_each_known_agent_gets_the_server_and_none_of_the_users_files_changes(
    place: Place, kind: str
) -> None:
    before = {path: path.read_bytes() for path in place.user.rglob("*") if path.is_file()}
    plain = place.prepare(kind, "hello", mcp=False)
    assert not plain.mcp
    assert place.prepare(kind, "hello").mcp and kinds.find(kind).mcp_since
    assert {path: path.read_bytes() for path in place.user.rglob("*") if path.is_file()} == before
    assert [path.name for path in place.project.iterdir()] == [".git"]


# claude


def test_claude_gets_the_server_beside_the_users_own(place: Place) -> None:
    own = ["--mcp-config", "mine.json", "--allowedTools", "Bash", "--", "hello"]
    command = place.prepare("claude", *own).command
    # The next flag ends the lists of the first two.
    assert command[1:6:2] == ["--mcp-config", "--allowedTools", "--settings"]
    assert command[7:] == own
    assert json.loads(Path(command[2]).read_text()) == {"mcpServers": {"relay": STDIO}}
    assert command[4].split(",") == [f"mcp__relay__{name}" for name in mcp_server.UNASKED]


@pytest.mark.parametrize("flag", ["--strict-mcp-config", "--bare", "--safe-mode"])
def test_claude_is_left_alone_if_its_user_wants_no_further_servers(place: Place, flag: str) -> None:
    prepared = place.prepare("claude", flag)
    assert (prepared.mcp, "--mcp-config" in prepared.command) == (False, False)


def test_claude_is_left_alone_if_it_would_not_start_with_the_flag(place: Place, tmp_path: Path) -> None:
    place.install("claude", "2.1.100")
    assert not place.prepare("claude").mcp
    place.install("claude")
    for name, content in (
        ("managed-mcp.json", {}),
        ("managed-settings.d/10.json", {"disableSideloadFlags": True}),
    ):
        file = tmp_path / "etc" / name
        write_json(file, content)
        assert not place.prepare("claude").mcp
        file.unlink()
    assert place.prepare("claude").mcp


def test_claude_keeps_a_server_of_the_users_with_the_same_name(place: Place, tmp_path: Path) -> None:
    own = {"mcpServers": {"relay": {"command": "mine"}}}
    for file, content in (
        (place.user / ".claude.json", own),
        (place.user / ".claude.json", {"projects": {str(place.project): own}}),
        (place.project / ".mcp.json", own),
    ):
        write_json(file, content)
        assert not place.prepare("claude").mcp, file
        file.unlink()
    write_json(place.user / ".claude.json", {"projects": {str(tmp_path / "another"): own}})
    assert place.prepare("claude").mcp
    given = tmp_path / "given.json"
    for flags in (
        ["--mcp-config", "x", str(given)],
        [f"--mcp-config={given}"],
        ["--mcp-config", json.dumps(own)],
    ):
        write_json(given, own)
        assert not place.prepare("claude", *flags).mcp, flags
        given.unlink()
    assert place.prepare("claude", "--mcp-config", str(given), "--", json.dumps(own)).mcp


# codex


def flag(prepared: Prepared) -> str:
    (found,) = [word for word in prepared.command if word.startswith("mcp_servers.")]
    return found


def test_codex_gets_the_server_with_its_variables(place: Place) -> None:
    prepared = place.prepare("codex", "-c", "model=x", RELAY_SOCKET="s", XDG_STATE_HOME="/x")
    assert prepared.command[-2:] == ["-c", "model=x"]
    server = tomllib.loads(flag(prepared))["mcp_servers"]["relay"]
    assert server.pop("env_vars") == ["RELAY_NAME", "RELAY_SOCKET", "XDG_STATE_HOME"]
    assert server.pop("tools") == {name: {"approval_mode": "approve"} for name in mcp_server.UNASKED}
    assert server == STDIO


def test_codex_is_left_alone_with_the_users_own_server(place: Place) -> None:
    assert not place.prepare("codex", "--remote=unix://s").mcp
    assert not place.prepare("codex", "-c", "mcp_servers.relay.enabled=false").mcp
    assert place.prepare("codex", "-c", "mcp_servers.relayed.enabled=false").mcp
    for file in (place.user / ".codex" / "config.toml", place.project / ".codex" / "config.toml"):
        file.parent.mkdir()
        file.write_text('[mcp_servers.relay]\ncommand = "mine"\n')
        assert not place.prepare("codex").mcp, file
        file.unlink()
    place.install("codex", "0.125.0")
    assert not place.prepare("codex").mcp


# qwen, gemini


@pytest.mark.parametrize(
    ("kind", "group", "key", "prefix"),
    [("qwen", "permissions", "allow", "mcp__relay__"), ("gemini", "tools", "allowed", "mcp_relay_")],
)
def test_the_server_is_among_the_administrators_defaults(
    place: Place, tmp_path: Path, kind: str, group: str, key: str, prefix: str
) -> None:
    variable = "QWEN_CODE_SYSTEM_DEFAULTS_PATH" if kind == "qwen" else "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
    file = tmp_path / "defaults.json"
    write_json(file, {"mcpServers": {"theirs": {}}, group: {key: ["theirs"], "other": 1}})
    prepared = place.prepare(kind, **{variable: str(file)})
    defaults = json.loads(Path(prepared.env[variable]).read_text())
    assert defaults["mcpServers"] == {"theirs": {}, "relay": STDIO}
    assert defaults[group] == {
        key: ["theirs", *(f"{prefix}{name}" for name in mcp_server.UNASKED)],
        "other": 1,
    }
    assert defaults["hooks"]
    for folder in (place.user, place.project):  # its tools would need no permission
        own = folder / f".{kind}" / "settings.json"
        write_json(own, {"mcpServers": {"relay": {"command": "mine"}}})
        own.write_text("// a comment\n" + own.read_text())
        assert not place.prepare(kind).mcp
        own.unlink()
    write_json(file, {"mcpServers": {"relay": {"command": "theirs"}}})
    prepared = place.prepare(kind, **{variable: str(file)})
    assert not prepared.mcp
    defaults = json.loads(Path(prepared.env[variable]).read_text())
    assert (defaults["mcpServers"], group in defaults) == ({"relay": {"command": "theirs"}}, False)


# copilot


def test_copilot_gets_the_server_beside_the_users_own(place: Place) -> None:
    own = ["--additional-mcp-config", "{}", "--allow-tool", "shell(git:*)"]
    command = place.prepare("copilot", *own).command
    assert command[1] == "--additional-mcp-config" and command[-4:] == own
    assert json.loads(Path(command[2].removeprefix("@")).read_text()) == {"mcpServers": {"relay": STDIO}}
    assert command[3] == f"--allow-tool={','.join(f'relay({name})' for name in mcp_server.UNASKED)}"


def test_copilot_keeps_a_server_of_the_users_with_the_same_name(place: Place, tmp_path: Path) -> None:
    """Copilot would use ours instead, and call theirs without asking."""
    own = {"mcpServers": {"relay": {"command": "mine"}}}
    elsewhere = {"COPILOT_HOME": str(tmp_path / "own")}
    for file in (
        place.user / ".copilot" / "mcp-config.json",
        place.project / ".mcp.json",
        place.project / ".github" / "mcp.json",
    ):
        write_json(file, own)
        assert not place.prepare("copilot").mcp, file
        file.unlink()
    write_json(place.user / ".copilot" / "mcp-config.json", own)
    assert place.prepare("copilot", **elsewhere).mcp
    write_json(tmp_path / "own" / "mcp-config.json", own)
    assert not place.prepare("copilot", **elsewhere).mcp
    (place.user / ".copilot" / "mcp-config.json").unlink()
    name, given = "--additional-mcp-config", f"@{tmp_path / 'own' / 'mcp-config.json'}"
    for flags in ([name, given], [f"{name}={given}"], [name, json.dumps(own)], [name, "{}", name, given]):
        assert not place.prepare("copilot", *flags).mcp, flags
    assert place.prepare("copilot", "--interactive", json.dumps(own)).mcp


def test_copilot_does_not_get_a_server_that_its_user_has_disabled(place: Place) -> None:
    """Copilot would not start it."""
    assert not place.prepare("copilot", "--disable-mcp-server", "relay").mcp
    assert place.prepare("copilot", "--disable-mcp-server=mine").mcp
    settings = place.user / ".copilot" / "settings.json"
    write_json(settings, {"disabledMcpServers": ["mine", "relay"]})
    assert not place.prepare("copilot").mcp
    write_json(settings, {"disabledMcpServers": ["mine"], "other": ["relay"]})
    assert place.prepare("copilot").mcp


# opencode


def test_opencode_gets_the_server_beside_the_users_own(place: Place) -> None:
    name = "OPENCODE_CONFIG_CONTENT"
    prepared = place.prepare("opencode", **{name: '{"mcp": {"mine": {}}, "model": "x"}'})
    config = json.loads(prepared.env[name])
    server = {"type": "local", "command": [sys.executable, *mcp_server.ARGUMENTS]}
    assert config["mcp"] == {"mine": {}, "relay": server}
    assert (config["model"], len(config["plugin"])) == ("x", 1)
    assert "relay" not in json.loads(prepared.env["RELAY_BRIDGE"])["shell"][name]


def test_opencode_keeps_a_server_of_the_users_with_the_same_name(place: Place, tmp_path: Path) -> None:
    own = {"mcp": {"relay": {"type": "local", "command": ["mine"]}}}
    assert not place.prepare("opencode", OPENCODE_CONFIG_CONTENT=json.dumps(own)).mcp
    elsewhere = {"OPENCODE_CONFIG": str(tmp_path / "own.json")}
    for file in (
        place.user / ".config" / "opencode" / "opencode.jsonc",
        place.project / "opencode.json",
        tmp_path / "own.json",
    ):
        write_json(file, own)
        file.write_text("// a comment\n" + file.read_text())
        assert not place.prepare("opencode", **elsewhere).mcp, file
        file.unlink()
    assert place.prepare("opencode", **elsewhere).mcp


# pi

REGISTERED = """
import connect from EXTENSION
for (const commands of [["mcp", "model"], ["model"]]) {
  const registered = []
  const pi = {
    on: (event, handler) => { pi[event] = handler },
    getCommands: () => commands.map((name) => ({ name })),
    registerMcpServer: (...server) => registered.push(server),
  }
  connect(pi)
  pi.session_start()
  console.log(JSON.stringify(registered))
}
"""


@needs_node
def test_pi_gets_the_server_if_it_supports_such_servers(place: Place) -> None:
    """--no-mcp, and a setting, leave out its own extension for them, which has the command /mcp."""
    command = place.prepare("pi", "hello").command
    assert command[1::2][:2] == ["--extension", "--extension"] and command[5:] == ["hello"]
    with_mcp, without = printed(REGISTERED.replace("EXTENSION", json.dumps(command[2])))
    assert (with_mcp, without) == ([["relay", {**STDIO, "exposure": "direct"}]], [])
    place.install("pi", "0.87.1")
    assert not place.prepare("pi").mcp


# the setting


def test_the_setting_leaves_the_server_out(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project's relay.toml counts only once it is trusted."""
    project = relay.home / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    home = Home.from_env(relay.environment).ensure()
    env = {**relay.environment, "RELAY_NAME": "Alice"}

    def has_it() -> bool:
        run = str(relay.home / "native")
        return bool(bridged(Options(["qwen"]), env, home, run, str(relay.home / "s.sock"))[2]["mcp"])

    assert has_it()
    (project / "relay.toml").write_text('mcp = "never"\n')
    assert has_it()
    relay("trust", "relay.toml", cwd=project)
    assert not has_it()
    (project / "relay.toml").unlink()
    (home.config / "relay.toml").write_text('mcp = "never"\n')
    assert not has_it()
