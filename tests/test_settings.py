"""The valid values of settings in relay.toml (tests/session covers their effect)."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.agents.catalog import load as load_profile
from relay.cli.wrap import parse
from relay.errors import ConfigError
from relay.home import Home
from relay.settings import FILE, Settings, load


def settings(folder: Path, line: str) -> tuple[Settings, list[str]]:
    home = Home(str(folder / "config"), str(folder / "state"), str(folder / "run"))
    (folder / FILE).write_text(line + "\n", encoding="utf-8")
    return load(home, folder, trusted=lambda path, content: False)


@pytest.mark.parametrize(
    ("name", "most"),
    [("idle_seconds", 3600), ("closing_seconds", 600), ("stop_seconds", 60)],
)
def test_timings_are_bounded(tmp_path: Path, name: str, most: int) -> None:
    """Otherwise any project could make `relay stop` wait for years."""
    assert settings(tmp_path, f"{name} = {most}") == (Settings(**{name: float(most)}), [])
    for value in (f"{most}.5", "9e8", "inf", "nan", "-1", "true"):
        loaded, (notice,) = settings(tmp_path, f"{name} = {value}")
        assert loaded == Settings()
        assert f"{name} must be a number of seconds from 0 to {most}, like " in notice


def test_channels_are_names_with_or_without_a_hash(tmp_path: Path) -> None:
    """A project may set them."""
    assert settings(tmp_path, "channels = ['#ops', 'dev']") == (Settings(channels=("#ops", "dev")), [])
    for line, message in (
        ("channels = ['#a b']", "channels[0]: 'a b' is not a valid channel"),
        ("channels = '#ops'", "channels must be a list of strings, not '#ops'."),
        ("channels = [1]", "channels[0] must be a string, not 1."),
    ):
        loaded, (notice,) = settings(tmp_path, line)
        assert (loaded, message in notice) == (Settings(), True), notice


def test_counts_and_choices_are_checked(tmp_path: Path) -> None:
    """An untrusted project cannot set them."""
    home = Home(str(tmp_path / "home"), str(tmp_path / "state"), str(tmp_path / "run"))
    project = tmp_path / "project"
    for folder in (home.config, project):
        folder.mkdir(parents=True)

    def own(line: str) -> tuple[Settings, list[str]]:
        (home.config / FILE).write_text(line + "\n", encoding="utf-8")
        return load(home, project, trusted=lambda path, content: False)

    assert own("continuations = 0\nteach = 'never'") == (Settings(continuations=0, teach="never"), [])
    for line, message in (
        ("continuations = 21", "continuations must be a whole number from 0 to 20, like 3, not 21."),
        ("continuations = 1.5", "not 1.5."),
        (f"continuations = 0x{'f' * 5000}", "not 0xfffff"),  # Python does not write it in decimal
        ("continuations = true", "not true."),
        ("subagents = 'maybe'", 'subagents must be "ignore" or "act", not \'maybe\'.'),
        (
            "\ndirectives = 'buildin'",
            'relay.toml:2: directives must be "all", "builtin" or "none", not \'buildin\'. ',
        ),
        ("directives = 'buildin'", "Did you mean builtin?"),
        ("idle_seconds = " + "9" * 5000, "not valid TOML: Exceeds the limit"),  # D14
        ("directives = false", 'directives must be "all", "builtin" or "none", not false.'),
    ):
        loaded, (notice,) = own(line)
        assert loaded == Settings()
        assert message in notice
    loaded, (notice,) = own("allow = ['Bash(git']")
    assert loaded == Settings() and "allow[0]: 'Bash(git' is not a rule" in notice
    (home.config / FILE).unlink()
    (project / FILE).write_text("continuations = 20\n", encoding="utf-8")
    loaded, (notice,) = load(home, project, trusted=lambda path, content: False)
    assert loaded == Settings()
    assert "continuations ignored, because the file is not trusted" in notice


def test_what_is_trusted_is_what_counts(tmp_path: Path) -> None:
    """D7: the file was read twice, and could be swapped in between."""
    home = Home(str(tmp_path / "home"), str(tmp_path / "state"), str(tmp_path / "run"))
    path = tmp_path / FILE
    path.write_text("continuations = 7\n", encoding="utf-8")

    def trusted(path: Path, content: bytes) -> bool:
        path.write_text("continuations = 20\n", encoding="utf-8")
        return content == b"continuations = 7\n"

    assert load(home, tmp_path, trusted) == (Settings(continuations=7), [])


def test_no_untrusted_project_shortens_the_time_of_a_guard(tmp_path: Path) -> None:
    """D2: a guard that times out lets the call through."""
    home = Home(str(tmp_path / "home"), str(tmp_path / "state"), str(tmp_path / "run"))
    (tmp_path / FILE).write_text("handler_seconds = 0\n", encoding="utf-8")
    loaded, (notice,) = load(home, tmp_path)
    assert loaded == Settings()
    assert "handler_seconds ignored, because the file is not trusted" in notice


def test_only_the_user_can_allow_tool_calls_in_advance(tmp_path: Path) -> None:
    """A project cannot, even if its file is trusted."""
    home = Home(str(tmp_path / "home"), str(tmp_path / "state"), str(tmp_path / "run"))
    project = tmp_path / "project"
    for folder in (home.config, project):
        folder.mkdir(parents=True)
    (home.config / FILE).write_text("allow = ['Read']\n", encoding="utf-8")
    (project / FILE).write_text("allow = ['Bash(rm *)']\nidle_seconds = 7\n", encoding="utf-8")
    loaded, (notice,) = load(home, project, trusted=lambda path, content: True)
    assert (loaded.allow, loaded.idle_seconds) == (("Read",), 7.0)
    assert "allow ignored: only your own" in notice


@pytest.mark.parametrize("prefix", ["@", "%", "+", "§", "»"])
def test_a_prefix_is_a_punctuation_character(tmp_path: Path, prefix: str) -> None:
    assert settings(tmp_path, f"prefix = '{prefix}'") == (Settings(prefix=prefix), [])


@pytest.mark.parametrize("prefix", ["", "ab", "a", "7", " ", ":", "\\", "\u00a0", "\u202e", "\u3000"])
def test_an_unusable_prefix_is_refused(tmp_path: Path, prefix: str) -> None:
    """Neither in relay.toml nor in pattern files."""
    loaded, (notice,) = settings(tmp_path, f"prefix = '{prefix}'")
    assert loaded == Settings()
    assert "prefix must be one punctuation character" in notice
    home = Home(str(tmp_path / "config"), str(tmp_path / "state"), str(tmp_path / "run"))
    (home.config / "patterns").mkdir(parents=True)
    (home.config / "patterns" / "mine.toml").write_text(f"prefix = '{prefix}'\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="prefix must be one punctuation character"):
        load_profile("mine", home)


def test_a_broker_has_one_or_several_urls(tmp_path: Path) -> None:
    several = Settings(broker="mqtts://a,mqtts://u:x,y@b:1")
    config = Home(str(tmp_path / "config"), str(tmp_path / "state"), str(tmp_path / "run"))
    (tmp_path / "config").mkdir()
    for line in ("['mqtts://a', 'mqtts://u:x,y@b:1']", "'mqtts://a,mqtts://u:x,y@b:1'"):
        (tmp_path / "config" / FILE).write_text(f"broker = {line}\n")
        assert load(config, tmp_path / "elsewhere") == (several, [])
    (tmp_path / "config" / FILE).write_text("broker = ['mqtts://a', 1]\n")
    loaded, (notice,) = load(config, tmp_path / "elsewhere")
    assert loaded == Settings()
    assert "broker[1] must be a string, not 1." in notice
    (tmp_path / "config" / FILE).write_text("prefix = ['@']\n")
    assert (
        "prefix must be one punctuation character, like '@', but not ':'"
        in load(config, tmp_path / "elsewhere")[1][0]
    )


def test_repeated_broker_options_are_combined() -> None:
    options = parse(["--broker", "mqtts://a", "--broker=mqtts://b,mqtts://c", "claude"])
    assert options.broker == "mqtts://a,mqtts://b,mqtts://c"


def test_the_tables_of_a_fleet_are_not_settings(tmp_path: Path) -> None:
    fleet = "\n[fleet]\nteam = 'x'\n[defaults]\nrestrat = 'no'\n[agents.Lead]\nrun = 'claude'"
    assert settings(tmp_path, f"idle_seconds = 7{fleet}") == (Settings(idle_seconds=7.0), [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("prefix = '+'\n\nidle_second = 1", 3),
        ("agents.A.task = '''\nidle_second = 0\n'''\nidle_second = 1", 4),
        ("agents = { A = { idle_second = 0 } }\n'idle_second' = 1", 2),
        ("\n[idle_second]", 2),
    ],
)
def test_a_mistake_is_reported_with_the_line_of_the_setting(tmp_path: Path, text: str, line: int) -> None:
    loaded, (notice,) = settings(tmp_path, text)
    assert loaded == Settings()
    assert f"{FILE}:{line}: unknown setting 'idle_second'. Did you mean idle_seconds?" in notice


def test_all_mistakes_are_reported_but_only_the_first_lines_of_many(tmp_path: Path) -> None:
    """A project may come from anywhere, and must not flood the terminal."""
    wrong = ["teach = 'no'", "allow = ['Read', 'Bash(', 1]", "idle_seconds = -1"]
    loaded, notices = settings(tmp_path, "\n".join(wrong))
    assert loaded == Settings()
    assert [notice.removeprefix(f"{tmp_path / FILE}:")[:11] for notice in notices] == [
        "1: teach mu",
        "2: allow[1]",
        "2: allow[2]",
        "3: idle_sec",
    ]
    assert [notice.endswith("relay ignores the whole file.") for notice in notices] == [False] * 3 + [True]
    _, notices = settings(tmp_path, "\n".join(f"x{number} = 1" for number in range(1000)))
    assert len(notices) == 5
    assert notices[-1].endswith("There are 1000 mistakes. relay ignores the whole file.")
