"""Setting up the bridge for a run: what it adds to the command and environment, and what it leaves."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import tomli

from relay.agents import hook_client, kinds
from relay.agents.catalog import profiles
from relay.agents.hook_setup import TIMEOUT, Prepared, bridge, call, prepare, remove
from relay.agents.kinds import codex, gemini
from relay.errors import ConfigError
from relay.home import Home

MATCHER = "ExitPlanMode|AskUserQuestion|EnterPlanMode"


class Place:
    """A user's home, a project, and the directory of one run; each with a space in its path."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "a user"
        self.project = folder / "a project"
        self.run = folder / "a run"
        self.socket = str(folder / "s o.sock")
        self.door = {"socket": str(folder / "s o.door"), "working": str(self.run / "working")}
        for each in (self.user, self.project):
            each.mkdir()

    def prepare(self, kind: str, *command: str, at: int | None = 0, **env: str) -> Prepared:
        return prepare(kind, command, {"HOME": str(self.user), **env}, str(self.run), self.socket, at=at)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.chdir(found.project)
    return found


def settings(prepared: Prepared) -> Any:
    return json.loads(Path(prepared.command[prepared.command.index("--settings") + 1]).read_text())


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def argv(handler: dict[str, Any]) -> list[str]:
    """Return a handler's command line, whatever the agent's format."""
    if "args" in handler:
        return [handler["command"], *handler["args"]]
    return shlex.split(handler["command"])


USERS_HOOK = {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}


# claude


def test_claude_gets_an_observer_and_a_decider(place: Place) -> None:
    """R93, R94, R97: the nested form, the exact matcher, an absolute program path and no shell."""
    prepared = place.prepare("claude", "claude", "-c", "hello")
    assert prepared.command[0] == "claude"
    assert prepared.command[3:] == ["-c", "hello"]
    hooks = settings(prepared)["hooks"]
    assert set(hooks) == set(kinds.find("claude").events) - {"MessageDisplay"}
    observer, decider = hooks["PreToolUse"]
    assert observer["matcher"] == MATCHER
    assert argv(observer["hooks"][0]) == call(str(place.run), "pretooluse")
    assert "matcher" not in decider
    assert argv(decider["hooks"][0]) == call(str(place.run), "decide", "PreToolUse")
    for event, groups in hooks.items():
        handler = groups[-1]["hooks"][0]
        assert handler["type"] == "command"
        assert handler["command"] == "/bin/sh", "in exec form, so that the user's shell does not split it"
        assert handler["args"][-3:] == [str(place.run / "hook"), "decide", event]
        assert handler["timeout"] == TIMEOUT > hook_client.LONGEST


def test_files_are_private_and_written_only_to_the_runs_folder(place: Place) -> None:
    write_json(place.user / ".claude" / "settings.json", {"hooks": {"Stop": [USERS_HOOK]}})
    before = {path: path.read_bytes() for path in place.user.rglob("*") if path.is_file()}
    place.prepare("claude", "claude")
    assert {path: path.read_bytes() for path in place.user.rglob("*") if path.is_file()} == before
    assert list(place.project.iterdir()) == []
    assert {file.name for file in place.run.iterdir()} == {"hook", "hook_client.py", "settings.json"}
    assert place.run.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in place.run.iterdir()} == {0o600}
    remove(str(place.run))
    assert not place.run.exists()
    remove(str(place.run))


@pytest.mark.parametrize("form", ["two words", "one word", "JSON", "from home"])
def test_the_users_settings_flag_keeps_working(place: Place, form: str) -> None:
    """R95: Claude accepts only one --settings, so both go into one file."""
    own = {"model": "opus", "hooks": {"Stop": [USERS_HOOK], "Odd": [USERS_HOOK]}}
    file = str(write_json(place.user / "my settings.json", own))
    given = {
        "two words": ["--settings", file],
        "one word": [f"--settings={file}"],
        "JSON": ["--settings", json.dumps(own)],
        "from home": ["--settings", "../a user/my settings.json"],
    }[form]
    prepared = place.prepare("claude", "claude", "-c", *given, "hello")
    assert prepared.command[3:] == ["-c", "hello"]
    merged = settings(prepared)
    assert merged["model"] == "opus"
    assert merged["hooks"]["Odd"] == [USERS_HOOK]
    assert merged["hooks"]["Stop"][0] == USERS_HOOK
    assert len(merged["hooks"]["Stop"]) == 2
    assert json.loads(Path(file).read_text()) == own


def test_a_prompt_that_looks_like_the_flag_is_unchanged(place: Place) -> None:
    prepared = place.prepare("claude", "claude", "--", "--settings", "x")
    assert prepared.command[3:] == ["--", "--settings", "x"]


@pytest.mark.parametrize(
    "given",
    ["{bad", "/nonexistent/settings.json", "[]", '{"hooks": 7}'],
    ids=["bad", "none", "list", "hooks"],
)
def test_unreadable_settings_are_left_to_claude(place: Place, tmp_path: Path, given: str) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    if given == "[]":
        given = str(write_json(place.user / "list.json", []))
    command = ["claude", "--settings", given]
    prepared = bridge("", command, {"A": "1"}, home, str(place.run), place.socket)
    assert (prepared.command, prepared.env, prepared.kind) == (command, {"A": "1"}, "")
    assert prepared.note
    assert not place.run.exists()


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("claude", "latin.json", "is not UTF-8"),
        ("claude", "~no-such-user/s.json", "Check that it exists"),
        ("qwen", "latin.json", "is not UTF-8"),
        ("qwen", "~no-such-user/q", ""),
    ],
)
def test_an_unreadable_file_is_named_with_a_fix(
    place: Place, tmp_path: Path, kind: str, given: str, expected: str
) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    latin = tmp_path / "latin.json"
    latin.write_bytes('{"x": "é"}'.encode("latin-1"))
    given = str(latin) if given == latin.name else given
    command, env = [kind], {"HOME": str(place.user)}
    if kind == "claude":
        command += ["--settings", given]
    else:
        env["QWEN_HOME" if given.startswith("~") else "QWEN_CODE_SYSTEM_DEFAULTS_PATH"] = given
    prepared = bridge("", command, env, home, str(place.run), place.socket)
    assert prepared.kind == ("" if expected else kind)
    assert expected in prepared.note and bool(expected) == (given in prepared.note)


def test_qwen_ignores_settings_that_are_not_text(place: Place) -> None:
    for folder in (place.user, place.project):
        write_json(folder / ".qwen" / "settings.json", {"hooks": {"Stop": [USERS_HOOK]}})
    (place.user / ".qwen" / "settings.json").write_bytes('{"hooks": "é"}'.encode("latin-1"))
    assert place.prepare("qwen", "qwen").kind == "qwen"


def test_settings_that_disable_hooks_are_reported(place: Place) -> None:
    prepared = place.prepare("claude", "claude", "--settings", '{"disableAllHooks": true}')
    assert "disable all hooks" in prepared.note


# codex


COMMON_EVENTS = {
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Notification", "Stop"),
    *("SubagentStop", "PreCompact", "SessionEnd"),
}


@pytest.mark.parametrize(
    ("version", "more", "shell"),
    [
        ("1.0.128", set(), True),
        ("2.0.77", {"PermissionRequest", "PostToolUseFailure", "SubagentStart"}, True),
        ("2.1.100", {"PermissionRequest", "PostToolUseFailure", "SubagentStart", "StopFailure"}, True),
        ("2.1.197", {"PermissionRequest", "PostToolUseFailure", "SubagentStart", "StopFailure"}, False),
    ],
)
@pytest.mark.parametrize("native", [False, True])
def test_an_older_claude_gets_only_events_and_syntax_that_it_supports(
    place: Place, tmp_path: Path, version: str, more: set[str], shell: bool, native: bool
) -> None:
    """An unknown event makes it start with a dialog; without support for `args` it runs no client."""
    program = tmp_path / "package" / ("versions" if native else "dist") / (version if native else "cli.js")
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    if not native:
        write_json(
            tmp_path / "package" / "package.json", {"name": "@anthropic-ai/claude-code", "version": version}
        )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(program)
    prepared = place.prepare("claude", "claude", PATH=str(tmp_path / "bin"))
    hooks = settings(prepared)["hooks"]
    assert set(hooks) == COMMON_EVENTS | more
    (decider,) = hooks["Stop"][0]["hooks"]
    client = call(str(place.run), "decide", "Stop")
    assert decider["timeout"] == TIMEOUT
    if shell:
        assert decider.keys() == {"type", "command", "timeout"}
        assert shlex.split(decider["command"]) == client
    else:
        assert [decider["command"], *decider["args"]] == client


def _flags(command: list[str]) -> dict[str, Any]:
    """Return the configuration that a command line's `-c` flags produce."""
    given = [command[place + 1] for place, word in enumerate(command) if word == "-c"]
    parsed = [tomli.loads(flag) for flag in given]
    return {key: value for each in parsed for key, value in each["hooks"].items()}


def test_codex_gets_flags_with_a_trust_record_for_each_entry(place: Place) -> None:
    """R93, R97: only relay's hooks become trusted; no flag bypasses the review."""
    prepared = place.prepare("codex", "codex", "resume", "--last")
    assert prepared.command[-2:] == ["resume", "--last"]
    assert not [word for word in prepared.command if "bypass" in word]
    hooks = _flags(prepared.command)
    trusted = hooks.pop("state")
    assert set(hooks) == set(kinds.find("codex").events)
    observer, decider = hooks["PreToolUse"]
    assert observer["matcher"] == MATCHER
    assert argv(observer["hooks"][0]) == call(str(place.run), "pretooluse")
    assert argv(decider["hooks"][0]) == call(str(place.run), "decide", "PreToolUse")
    source = "/<session-flags>/config.toml"
    assert set(trusted) == {f"{source}:pre_tool_use:0:0", f"{source}:pre_tool_use:1:0"} | {
        f"{source}:{codex._label(event)}:0:0" for event in hooks
    }
    assert hooks["SessionEnd"][0]["hooks"][0]["timeout"] == 3


def test_a_trust_record_equals_the_one_that_codex_writes() -> None:
    """codex 0.169.0 lists this hash for the entry (`/hooks`) and reports it as trusted."""
    group = {"hooks": [{"type": "command", "command": "echo “x”", "timeout": 100}]}
    text = (
        '{"event_name":"stop","hooks":[{"async":false,"command":"echo “x”","timeout":100,"type":"command"}]}'
    )
    import hashlib

    assert codex._hash("stop", group) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# qwen and gemini


@pytest.mark.parametrize(("kind", "prefix"), [("qwen", "QWEN_CODE"), ("gemini", "GEMINI_CLI")])
def test_the_administrators_defaults_are_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, prefix: str
) -> None:
    """R95: the variables locate the administrator's file, and relay's contains its settings and hooks."""
    monkeypatch.setattr(gemini, "_only_root_writes", lambda _: True)
    stop = "Stop" if kind == "qwen" else "AfterAgent"
    own = {"theme": "x", "hooks": {stop: [USERS_HOOK]}}
    defaults = write_json(place.user / "etc" / "system-defaults.json", own)
    for env in (
        {f"{prefix}_SYSTEM_DEFAULTS_PATH": str(defaults)},
        {f"{prefix}_SYSTEM_SETTINGS_PATH": str(defaults.with_name("settings.json"))},
    ):
        prepared = place.prepare(kind, kind, "-m", "x", **env)
        assert prepared.command == [kind, "-m", "x"]
        written = json.loads(Path(prepared.env[f"{prefix}_SYSTEM_DEFAULTS_PATH"]).read_text())
        assert written["theme"] == "x"
        assert written["hooks"][stop][0] == USERS_HOOK
        assert argv(written["hooks"][stop][1]["hooks"][0]) == call(str(place.run), "decide", stop)
        kept = f"{prefix}_SYSTEM_SETTINGS_PATH"
        assert prepared.env.get(kept) == env.get(kept), (
            "the path of the administrator's settings is unchanged"
        )
    assert json.loads(defaults.read_text()) == own


def test_timeouts_are_in_each_agents_unit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timeouts are milliseconds for these agents, and seconds for the others."""
    monkeypatch.setattr(gemini, "_only_root_writes", lambda _: True)
    for kind, event in (("qwen", "Stop"), ("gemini", "AfterAgent")):
        env = place.prepare(kind, kind).env
        path = next(env[name] for name in env if name.endswith("_SYSTEM_DEFAULTS_PATH"))
        assert json.loads(Path(path).read_text())["hooks"][event][0]["hooks"][0]["timeout"] == TIMEOUT * 1000


def test_qwen_is_read_from_its_screen_if_it_accepts_no_more_hooks(place: Place) -> None:
    write_json(place.user / ".qwen" / "settings.json", {"hooks": {"Stop": [USERS_HOOK]}})
    assert place.prepare("qwen", "qwen").kind == "qwen"
    write_json(place.project / ".qwen" / "settings.json", {"hooks": {"Stop": [USERS_HOOK]}})
    with pytest.raises(ConfigError, match="accepts no further hooks"):
        place.prepare("qwen", "qwen")


def test_gemini_is_read_from_its_screen_if_it_would_not_trust_the_folder(place: Place) -> None:
    """Other users can write to a folder below /tmp."""
    prepared = place.prepare("gemini", "gemini", "mcp", "list")
    assert "root owns" in prepared.note
    assert (prepared.command, prepared.kind, prepared.record) == (["gemini", "mcp", "list"], "", None)
    assert not place.run.exists()


# pi


def extension(prepared: Prepared) -> Any:
    """Return the options that the run's extension passes to relay's."""
    source = Path(prepared.command[prepared.command.index("--extension") + 1]).read_text()
    (own,) = re.findall(r'import extension from (".*")', source)
    folder = Path(json.loads(own)).parent
    assert Path(json.loads(own)).name == "pi.mjs" and (folder / "bridge.mjs").is_file()
    assert folder == Path(prepared.command[prepared.command.index("--extension") + 1]).parent
    (options,) = re.findall(r"export default extension\((.*)\)", source)
    return json.loads(options)


def test_pi_gets_an_extension_in_addition_to_the_users(place: Place) -> None:
    prepared = place.prepare("pi", "pi", "-e", "mine.ts", "--continue", "hello")
    file = str(place.run / "relay.js")
    assert prepared.command == ["pi", "--extension", file, "-e", "mine.ts", "--continue", "hello"]
    assert extension(prepared) == {
        "hook": call(str(place.run), "decide", "EVENT"),
        "transcript": str(place.run / "transcript.jsonl"),
        "timeout": TIMEOUT,
        "door": place.door,
    }
    assert (place.run.stat().st_mode & 0o777, Path(file).stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize(
    "command", [["install", "npm:x"], ["update"], ["list"], ["config"], ["auth", "check"]]
)
def test_a_pi_subcommand_that_starts_no_agent_is_unchanged(place: Place, command: list[str]) -> None:
    prepared = place.prepare("pi", "pi", *command)
    assert (prepared.command, prepared.kind) == (["pi", *command], "")


@pytest.mark.parametrize(
    ("version", "hooked"),
    [("0.30.2", False), ("0.64.9", False), ("0.65.0", True), ("1.5.2", True), ("x", True)],
)
def test_a_pi_too_old_for_the_extension_is_read_from_its_screen(
    place: Place, tmp_path: Path, version: str, hooked: bool
) -> None:
    package = tmp_path / "node_modules" / "@mariozechner" / "pi-coding-agent"
    write_json(package / "package.json", {"name": "@mariozechner/pi-coding-agent", "version": version})
    write_json(package / "dist" / "package.json", ["of another kind"])
    program = package / "dist" / "cli.js"
    program.touch(mode=0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pi").symlink_to(program)
    if hooked:
        assert place.prepare("pi", "pi", PATH=str(tmp_path / "bin")).kind == "pi"
    else:
        with pytest.raises(ConfigError, match=r"needs pi 0\.65 or later"):
            place.prepare("pi", "pi", PATH=str(tmp_path / "bin"))


# opencode


def plugins(prepared: Prepared) -> list[str]:
    return list(json.loads(prepared.env["OPENCODE_CONFIG_CONTENT"])["plugin"])


def test_opencode_gets_a_plugin_that_calls_the_client(place: Place) -> None:
    """R93: through the environment of this run only."""
    prepared = place.prepare("opencode", "opencode", "--continue")
    assert (prepared.command, prepared.kind, prepared.note) == (["opencode", "--continue"], "opencode", "")
    (uri,) = plugins(prepared)
    assert Path(unquote(uri.removeprefix("file://"))) == place.run / "opencode.mjs"
    assert (place.run / "bridge.mjs").is_file()
    options = json.loads(prepared.env["RELAY_BRIDGE"])
    shell = options.pop("shell")
    assert options == {
        "hook": call(str(place.run), "decide", "EVENT"),
        "transcript": str(place.run / "transcript.jsonl"),
        "timeout": TIMEOUT,
        "door": place.door,
    }
    assert shell == dict.fromkeys(prepared.env.keys() - {"HOME"}, ""), (
        "the agent's child processes get none of it"
    )


def test_the_users_opencode_configuration_keeps_working(place: Place) -> None:
    """R95: the user's plugins come first, everything else is unchanged, and child shells get it back."""
    own = '{"model": "{env:MODEL}", "agent": {"ü": {}}, "plugin": ["mine", ["theirs", {"a": 1}]]}'
    prepared = place.prepare("opencode", "opencode", OPENCODE_CONFIG_CONTENT=own)
    merged = json.loads(prepared.env["OPENCODE_CONFIG_CONTENT"])
    assert merged["plugin"][:2] == ["mine", ["theirs", {"a": 1}]] and len(merged["plugin"]) == 3
    assert (merged["model"], merged["agent"]) == ("{env:MODEL}", {"ü": {}})
    assert "ü" in prepared.env["OPENCODE_CONFIG_CONTENT"], "not escaped, as it may name a file"
    assert json.loads(prepared.env["RELAY_BRIDGE"])["shell"]["OPENCODE_CONFIG_CONTENT"] == own


def test_opencode_has_a_door_in_its_terminal_program_unless_the_user_configures_that(place: Place) -> None:
    name = "OPENCODE_TUI_CONFIG"
    env = place.prepare("opencode", "opencode").env
    ((uri, options),) = json.loads(Path(env[name]).read_text())["plugin"]
    assert Path(unquote(uri.removeprefix("file://"))) == place.run / "opencode_tui.mjs"
    assert (place.run / "opencode_tui.mjs").is_file() and (place.run / "door.mjs").is_file()
    assert options == {"door": place.door}
    own = place.prepare("opencode", "opencode", **{name: "/my/tui.json"}).env
    assert own[name] == "/my/tui.json"
    assert name not in json.loads(own["RELAY_BRIDGE"])["shell"]


def test_opencode_without_a_network_does_not_wait_long_for_its_package(place: Place) -> None:
    """npm retries within seconds unless the user has configured another pause."""
    name, other = (f"npm_config_fetch_retry_{which}timeout" for which in ("min", "max"))
    env = place.prepare("opencode", "opencode", **{name: "7"}).env
    assert (env[name], env[other]) == ("7", "1000")
    assert name not in json.loads(env["RELAY_BRIDGE"])["shell"]


@pytest.mark.parametrize("own", ["{bad", "[]", '{"plugin": "x"}', '{// a comment\n"model": "x"}'])
def test_a_configuration_that_cannot_be_merged_is_left_to_opencode(
    place: Place, tmp_path: Path, own: str
) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    env = {"OPENCODE_CONFIG_CONTENT": own}
    prepared = bridge("", ["opencode"], env, home, str(place.run), place.socket)
    assert (prepared.command, prepared.env, prepared.kind) == (["opencode"], env, "")
    assert "OPENCODE_CONFIG_CONTENT" in prepared.note


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_an_opencode_with_plugins_disabled_is_reported(place: Place, how: str) -> None:
    argv, env = (["--pure"], {}) if how == "flag" else ([], {"OPENCODE_PURE": "1"})
    assert "disables all plugins" in place.prepare("opencode", "opencode", *argv, **env).note


# relay's own dialect


def test_a_program_with_relays_dialect_gets_the_path_of_its_transcript(place: Place) -> None:
    prepared = place.prepare("relay", "mine", "-x", A="1")
    path = str(place.run / "transcript.jsonl")
    assert (prepared.command, prepared.kind) == (["mine", "-x"], "relay")
    assert prepared.env == {"HOME": str(place.user), "A": "1", "RELAY_TRANSCRIPT": path}


# all agents


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["nice", "claude", "-c"], ["nice", "claude", "--settings", "FILE", "-c"]),
        (["env", "A=claude", "/opt/x/claude"], ["env", "A=claude", "/opt/x/claude", "--settings", "FILE"]),
    ],
)
def test_the_agent_is_found_behind_launchers(
    place: Place, tmp_path: Path, command: list[str], expected: list[str]
) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    prepared = bridge("", command, {}, home, str(place.run), place.socket)
    file = str(place.run / "settings.json")
    assert prepared.command == [file if word == "FILE" else word for word in expected]
    assert prepared.kind == "claude"


def test_a_program_with_another_name_gets_the_flags_last(place: Place, tmp_path: Path) -> None:
    """Arguments of `npx` or a script precede the agent's."""
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    command = ["npx", "@anthropic-ai/claude-code", "-c", "--", "hello"]
    prepared = bridge("claude", command, {}, home, str(place.run), place.socket)
    assert prepared.command[:3] == ["npx", "@anthropic-ai/claude-code", "-c"]
    assert prepared.command[3] == "--settings"
    assert prepared.command[5:] == ["--", "hello"]


def test_a_program_without_hooks_is_unchanged(place: Place, tmp_path: Path) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    prepared = bridge("", ["cat", "claude.txt"], {"A": "1"}, home, str(place.run), place.socket)
    assert prepared == Prepared(["cat", "claude.txt"], {"A": "1"})
    assert not place.run.exists()


def test_the_programs_that_wait_for_profiles_have_hooks_or_a_transcript(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "c"), str(tmp_path / "s"), str(tmp_path / "r")).ensure()
    hooked = [profile for profile in profiles(home) if profile.native.hooks or profile.native.transcript]
    # A profile with the dialect "relay" is always the user's own.
    found = {profile.native.hooks or profile.native.transcript for profile in hooked}
    assert found == set(kinds.names()) - {"relay"}
    for profile in hooked:
        assert all(any(name in command for name in kinds.names()) for command in profile.commands), (
            profile.name
        )
