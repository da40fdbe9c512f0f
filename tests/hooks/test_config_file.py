"""relay.config.py: where relay looks for it, when it may run, and the messages about a mistake."""

import re
import sys
from pathlib import Path

import pytest

from hooks.rig import Rig, texts
from relay.errors import ConfigError
from relay.home import Home
from relay.hooks.config_file import Choice, Loaded, changed, choose, find, read
from relay.hooks.config_file import load as load_file
from relay.hooks.events import SessionStart
from relay.hooks.trust import Trust
from relay.memory.config import MemoryConfig

GOOD = """
from relay import on, pattern

@pattern("deploy")
async def deploy(target, message, ctx):
    return {"inject": f"Deployed {message} to {target}"}

@on("session_start")
def greet(event, ctx):
    ctx.inject("You are on call.")
"""

RELAY_CONFIG = "from relay import RelayConfig\n"


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a user's relay home, with `tmp_path/user_home` as the home folder."""
    folder = tmp_path / "user_home"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Home(folder / "config", folder / "state", folder / "run").ensure()


def write(path: Path, text: str = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearest_file_up_to_the_project_root_is_found(user_home: Home, tmp_path: Path):
    """R57"""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "a" / "b").mkdir(parents=True)
    write(tmp_path / "relay.config.py")
    assert find(project / "a" / "b") is None
    top = write(project / "relay.config.py")
    assert find(project / "a" / "b") == top
    nearest = write(project / "a" / "relay.config.py")
    assert find(project / "a" / "b") == nearest


def test_the_search_ends_at_the_home_folder(user_home: Home, tmp_path: Path):
    """R57"""
    work = tmp_path / "user_home" / "work"
    work.mkdir()
    write(tmp_path / "relay.config.py")
    assert find(work) is None


def test_the_users_own_file_is_the_default_and_needs_no_trust(user_home: Home, tmp_path: Path):
    """R57"""
    assert choose(user_home, tmp_path) == Choice()
    own = write(user_home.config / "relay.config.py")
    assert choose(user_home, tmp_path) == Choice((read(own),), paths=(own,))


def test_a_projects_file_adds_to_the_users_own(user_home: Home, tmp_path: Path):
    """B1: no project can switch off the user's guards."""
    own = write(user_home.config / "relay.config.py")
    path = write(tmp_path / "relay.config.py", "x = 1")
    choice = choose(user_home, tmp_path)
    assert choice.files == (read(own),)
    assert len(choice.untrusted) == 1
    Trust(user_home).grant(path, path.read_bytes())
    assert choose(user_home, tmp_path) == Choice((read(own), read(path)), paths=(own, path))
    assert choose(user_home, tmp_path, own) == Choice((read(own),), paths=(own,))
    missing = choose(user_home, tmp_path, tmp_path / "missing.py")
    assert missing.files == (read(own),)
    assert re.search(
        r"missing.py: there is no such file. Check the path", str(missing.errors[tmp_path / "missing.py"])
    )


def test_a_projects_file_runs_only_if_trusted_and_unchanged(user_home: Home, tmp_path: Path):
    path = write(tmp_path / "my project" / "relay.config.py")
    choice = choose(user_home, path.parent)
    assert choice.files == ()
    assert "is not trusted, so it does not run" in choice.untrusted[path]
    assert f"relay trust '{path}'" in choice.untrusted[path]
    Trust(user_home).grant(path, path.read_bytes())
    assert choose(user_home, path.parent).files[0].source == GOOD.encode()
    write(path, GOOD + "\n")
    assert choose(user_home, path.parent).files == ()


def test_trust_applies_to_one_path(user_home: Home, tmp_path: Path):
    path = write(tmp_path / "a" / "relay.config.py")
    Trust(user_home).grant(path, path.read_bytes())
    write(tmp_path / "b" / "relay.config.py")
    assert choose(user_home, tmp_path / "b").files == ()


def test_a_file_named_on_the_command_line_still_needs_trust(user_home: Home, tmp_path: Path):
    named = write(tmp_path / "elsewhere.py")
    assert choose(user_home, tmp_path, named).files == ()


def test_modules_in_handlers_beside_the_file_are_read_like_it(user_home: Home, tmp_path: Path):
    own = write(user_home.config / "relay.config.py", "")
    greet = write(user_home.config / "handlers" / "greet.py")
    path = write(tmp_path / "relay.config.py", "")
    second, first = write(tmp_path / "handlers" / "b.py"), write(tmp_path / "handlers" / "a.py")
    for other in ("_shared.py", "notes.txt"):
        write(tmp_path / "handlers" / other)
    write(tmp_path / "handlers" / "views.py", "import relaying\n\ndef view(): ...\n")  # of a web server
    choice = choose(user_home, tmp_path)
    assert choice.files == (read(own), read(greet))
    assert [*choice.untrusted] == [path, first, second]
    for each in (path, first):
        Trust(user_home).grant(each, each.read_bytes())
    choice = choose(user_home, tmp_path)
    assert choice.paths == (own, greet, path, first, second)
    assert choice.files == (read(own), read(greet), read(path), read(first))
    path.unlink()
    assert choose(user_home, tmp_path).paths == (own, greet)
    named = write(tmp_path / "named.py")
    assert choose(user_home, tmp_path, named).paths == (own, greet, named)


def test_the_hashed_content_is_what_runs(rig: Rig, user_home: Home, tmp_path: Path):
    path = write(tmp_path / "relay.config.py")
    Trust(user_home).grant(path, path.read_bytes())
    choice = choose(user_home, tmp_path)
    write(path, "raise RuntimeError('the newer content ran')")
    assert len(load_file(choice.files[0], rig.registry).registry.handlers()) == 2
    assert changed(path, choice.files[0].digest)


def test_a_changed_or_deleted_file_is_noticed(tmp_path: Path):
    path = write(tmp_path / "relay.config.py")
    digest = read(path).digest
    assert not changed(path, digest)
    write(path, GOOD + "# more")
    assert changed(path, digest)
    path.unlink()
    assert changed(path, digest)


def test_a_corrupt_trust_file_trusts_nothing(user_home: Home, tmp_path: Path):
    path = write(tmp_path / "relay.config.py")
    for damage in ("{", "[]", "[" * 5000, '{"files": []}', '{"files": {"%s": 3}}' % path):  # noqa: UP031
        user_home.trust.write_text(damage)
        assert not Trust(user_home).covers(path, path.read_bytes())
    Trust(user_home).grant(path, path.read_bytes())
    assert Trust(user_home).covers(path, path.read_bytes())
    assert user_home.trust.stat().st_mode & 0o777 == 0o600


def test_a_link_to_a_trusted_file_is_not_trusted(user_home: Home, tmp_path: Path):
    """D1: a project would run its own scripts by the rules of its neighbour."""
    path = write(tmp_path / "a" / "relay.config.py")
    Trust(user_home).grant(path, path.read_bytes())
    (tmp_path / "b").mkdir()
    link = tmp_path / "b" / "relay.config.py"
    link.symlink_to(path)
    assert not Trust(user_home).covers(link, link.read_bytes())
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert Trust(user_home).covers(tmp_path / "c" / "relay.config.py", path.read_bytes())


def load(rig: Rig, folder: Path, text: str, **options: float) -> Loaded:
    """Load `text` as a relay.config.py; its handlers are then in the rig's registry."""
    loaded = load_file(read(write(folder / "relay.config.py", text)), rig.registry, **options)
    rig.registry.include(loaded.registry)
    return loaded


def test_decorators_register_handlers(rig: Rig, user_home: Home, tmp_path: Path):
    """R49, R50, R51, R57"""
    load(rig, tmp_path, GOOD)
    outcome, _ = rig.say("@deploy:staging v1.2.3")
    assert texts(outcome.results) == ["Deployed v1.2.3 to staging"]
    assert texts(rig.fire(SessionStart())[0]) == ["You are on call."]


def test_a_relay_config_registers_handlers(rig: Rig, user_home: Home, tmp_path: Path):
    """R49, R57, R58, R63"""
    loaded = load(
        rig,
        tmp_path,
        """
from relay import RelayConfig

config = RelayConfig(
    patterns={
        "memory": "builtin",
        "deploy": lambda target, message, ctx: f"plain {target}",
        "status": {"handler": lambda: "status", "body": False, "priority": 3},
        "relay": {"handler": lambda: "mine", "override": True},
    },
    hooks={"onSessionStart": [lambda ctx: "one", lambda ctx: "two"]},
    memory={"backend": "embedded", "autoSave": False, "promptOnEnd": True},
    channels=["#ops", "dev"],
)
""",
    )
    assert loaded.memory == MemoryConfig("embedded", prompt_on_end=True)
    assert loaded.channels == ("#ops", "dev")
    assert texts(rig.say("@deploy:x y")[0].results) == ["plain x"]
    assert texts(rig.say("@status:x")[0].results) == ["status"]
    assert texts(rig.say("@relay:Bob y")[0].results) == ["mine"]
    assert "Saved" in texts(rig.say("@memory:save y")[0].results)[0]
    assert texts(rig.fire(SessionStart())[0]) == ["one", "two"]


def test_a_relay_config_adds_the_handlers_of_installed_packages(
    rig: Rig, user_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = "from relay import RelayConfig\nconfig = RelayConfig(patterns={'ship': lambda: 'shipped'})\n"
    write(tmp_path / "site" / "ship_handlers.py", module + "other = 3\n")
    package = tmp_path / "site" / "ship-1.0.dist-info"
    write(package / "METADATA", "Metadata-Version: 2.1\nName: ship\nVersion: 1.0\n")
    points = ("ship = ship_handlers:config", "other = ship_handlers:other", "bad = ship_handlers:missing")
    write(package / "entry_points.txt", "\n".join(("[relay.handlers]", *points)))
    monkeypatch.syspath_prepend(tmp_path / "site")
    for _ in range(2):  # the second session of a process finds the module imported
        loaded = load(rig, tmp_path, f"{RELAY_CONFIG}config = RelayConfig(plugins=['ship'])\n")
        assert [each.label for each in loaded.registry.handlers()] == ["@ship"]
    for name, why in (
        ("other", "'other' is ship_handlers:other, which is no RelayConfig, but 3."),
        ("bad", "'bad' (ship_handlers:missing) cannot be loaded: AttributeError: "),
        ("shop", "no installed package has handlers called 'shop'. Did you mean 'ship'?"),
    ):
        with pytest.raises(ConfigError, match=rf"relay\.config\.py:3: plugins: {re.escape(why)}"):
            load(rig, tmp_path, f"{RELAY_CONFIG}\nconfig = RelayConfig(plugins=[{name!r}])\n")


def test_decorators_and_a_relay_config_can_be_combined(rig: Rig, user_home: Home, tmp_path: Path):
    """R68"""
    load(
        rig,
        tmp_path,
        GOOD + RELAY_CONFIG + "config = RelayConfig(hooks={'idle': greet})\n",
    )
    labels = [handler.label for handler in rig.registry.handlers() if not handler.builtin]
    assert labels == ["@deploy", "on session_start", "on idle"]


def test_a_module_next_to_the_file_can_be_imported(rig: Rig, user_home: Home, tmp_path: Path):
    write(tmp_path / "beside_the_config.py", "TEXT = 'from beside'")
    load(
        rig,
        tmp_path,
        "from relay import on\nimport beside_the_config\non('idle')(lambda: beside_the_config.TEXT)\n",
    )
    assert sys.modules["beside_the_config"].__file__ == str(tmp_path / "beside_the_config.py")
    del sys.modules["beside_the_config"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = (\n", 1, "this is not Python: '(' was never closed. Fix the line."),
        ("a = 1\ndef f(:\n", 2, "this is not Python: invalid syntax"),
        ("\x00", None, "null bytes"),
        (
            "import os\nimport no_such_module_anywhere.sub\n",
            2,
            "no module 'no_such_module_anywhere'",
        ),
        ("import no_such_module_anywhere.sub\n", 1, "-m pip install no_such_module_anywhere"),
        ("from relay import patern\n", 1, "cannot import name 'patern'"),
        ("def f():\n  return 1 / 0\nf()\n", 2, "loading failed with ZeroDivisionError: division by zero."),
        ("import sys\nsys.exit(1)\n", 2, "calls sys.exit while loading"),
        ("from relay import pattern\n@pattern('de ploy')\ndef f(): ...\n", 2, "'de ploy' is not a pattern"),
        ("from relay import on\n@on('sesion_start')\ndef f(): ...\n", 2, "Did you mean 'session_start'?"),
        (
            "from relay import on\n@on('idle')\ndef f(a, b, c): ...\n",
            2,
            "'c' of f has no value to receive",
        ),
        ("x = 1\nconfig = {'patterns': {}}\n", 2, "write config = RelayConfig(patterns=..."),
        (
            RELAY_CONFIG + "config = RelayConfig(patterns=3)\n",
            2,
            "must be a dict, not 3",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(pattern={})\n",
            2,
            "keyword argument 'pattern'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(patterns={'a': 3})\n",
            2,
            "'a' must be a function",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(patterns={'a': {'handle': print}})\n",
            2,
            "'a' has no 'handler'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(patterns={'a': {'handler': print, 'x': 1}})\n",
            2,
            "'a' has the key 'x'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(channels='#ops')\n",
            2,
            "channels must be a list such as ['#ops'], not '#ops'.",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(channels=['#a b'])\n",
            2,
            "channels: 'a b' is not a valid channel",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(hooks={'onIdle': 3})\n",
            2,
            "must be a function",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(hooks={'onIdel': print})\n",
            2,
            "no event 'onIdel'",
        ),
        (
            RELAY_CONFIG + "\nconfig = RelayConfig(patterns={'nope': 'builtin'})\n",
            3,
            "there is no built-in handler for 'nope'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'backend': 'memO'})\n",
            2,
            '"embedded", "mem0", "qdrant" or "custom", not \'memO\'. Did you mean mem0?',
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'backnd': 'x'})\n",
            2,
            "unknown setting 'backnd'. Did you mean backend?",
        ),
        (RELAY_CONFIG + "config = RelayConfig(memory=True)\n", 2, "memory must be a dict"),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'config': {'url': 'http://localhost'}})\n",
            2,
            "the embedded backend has no settings",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'backend': 'custom'})\n",
            2,
            "the backend 'custom' needs a factory",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'backend': 'custom', 'factory': 'package'})\n",
            2,
            "factory must be a class, a function or 'package.module:name', not 'package'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'backend': 'mem0', 'factory': dict})\n",
            2,
            "factory belongs only to the backend 'custom'",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'timeout': 0})\n",
            2,
            "timeout must be a number of seconds up to 600, not 0",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'autoSave': True, 'auto_save': False})\n",
            2,
            "auto_save is given twice",
        ),
        (
            RELAY_CONFIG + "config = RelayConfig(memory={'promptOnEnd': 'yes'})\n",
            2,
            "prompt_on_end must be true or false, not 'yes'",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_registers_nothing(
    rig: Rig, user_home: Home, tmp_path: Path, text, line, message
):
    """R57, R63"""
    before = rig.registry.handlers()
    with pytest.raises(ConfigError) as caught:
        load(rig, tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.path == tmp_path / "relay.config.py"
    assert caught.value.line == line
    assert str(caught.value).count("relay.config.py") == 1
    assert rig.registry.handlers() == before


def test_a_file_that_fails_halfway_registers_nothing(rig: Rig, user_home: Home, tmp_path: Path):
    before = rig.registry.handlers()
    with pytest.raises(ConfigError):
        load(rig, tmp_path, GOOD + "\nraise RuntimeError\n")
    assert rig.registry.handlers() == before


def test_a_file_that_does_not_finish_loading_is_abandoned(rig: Rig, user_home: Home, tmp_path: Path):
    with pytest.raises(ConfigError, match=r":[23]: loading did not finish within 0\.2 s"):
        load(rig, tmp_path, "x = 1\nwhile True:\n    pass\n", timeout=0.2)


def test_output_of_a_loading_file_does_not_reach_the_terminal(
    rig: Rig, user_home: Home, tmp_path: Path, capfd
):
    assert load(rig, tmp_path, "print('loading \\x1b[2J')\n").printed == "loading \x1b[2J\n"
    assert capfd.readouterr() == ("", "")
