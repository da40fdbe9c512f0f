"""Agent profiles: shipped ones, the user's, and messages about mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay import data
from relay.agents.catalog import fallback, for_command, load, profiles
from relay.errors import ConfigError, ConfigMistakes
from relay.home import Home
from support import Relay

RULE = """[[states]]
name = 'a'
state = 'ready'
all = ['x']
"""
OTHER = RULE.replace("'a'", "'b'")


def make_user(folder: Path) -> Home:
    home = Home(folder / "config", folder / "state", folder / "run")
    (home.config / "patterns").mkdir(parents=True)
    return home


@pytest.fixture
def user(tmp_path: Path) -> Home:
    return make_user(tmp_path)


def write(user: Home, name: str, text: str) -> Path:
    path = user.config / "patterns" / f"{name}.toml"
    path.write_text(text)
    return path


def test_every_shipped_file_is_a_profile(user: Home) -> None:
    names = {path.stem for path in data.directory("patterns").glob("*.toml")}
    assert {"generic", "shell", "repl", "fullscreen"} <= names
    assert {profile.name for profile in profiles(user)} == names


COMMANDS = [
    ("bash", "shell"),
    ("/bin/bash -l", "shell"),
    ("-zsh", "shell"),
    ("bash --rcfile x -i", "shell"),
    ("sh -s argument", "shell"),
    ("env A=1 bash", "shell"),
    ("sudo -E fish", "shell"),
    ("sudo -g staff -E fish", "shell"),
    ("sudo -Eg staff -- fish", "shell"),
    ("sudo --group staff fish", "shell"),
    ("sudo --group=staff fish", "shell"),
    ("sudo -u bob fish", "generic"),  # only this user gets relay's environment
    ("nice -n 10 fish", "shell"),
    ("nice -n10 fish", "shell"),
    ("env -u HOME A=1 stdbuf -oL fish", "shell"),
    ("ssh -p 22 host", "shell"),
    ("bash script.sh", "generic"),
    ("bash -lc agent", "generic"),
    ("bash -o pipefail script.sh", "generic"),
    ("ssh host agent", "generic"),
    ("python3", "repl"),
    ("python3.12 -Werror", "repl"),
    ("python3 -i agent.py", "repl"),
    ("node", "repl"),
    ("psql -h host shop", "repl"),
    ("sqlite3 shop.db", "repl"),
    ("python3 agent.py", "generic"),
    ("python3 -m agent", "generic"),
    ("python3 -Ic pass", "generic"),
    ("python3 -X dev agent.py -i", "generic"),
    ("node agent.js", "generic"),
    ("psql -c select", "generic"),
    ("sqlite3 shop.db select", "generic"),
    ("vim notes", "fullscreen"),
    ("cat", "generic"),
]


def test_a_command_has_a_profile(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (command, name) in enumerate(COMMANDS):
        with subtests.test(command):
            user = make_user(tmp_path / str(number))
            assert for_command(command.split(), user).name == name


def test_programs_that_execute_input_or_read_keys_are_never_typed_into(user: Home) -> None:
    assert {p.name for p in profiles(user) if p.inject == "never"} >= {"shell", "repl", "fullscreen"}
    assert load("generic", user).inject == "auto"


def test_the_users_keys_override_the_shipped_ones(user: Home) -> None:
    path = write(user, "shell", 'inject = "auto"\n')
    profile = for_command(["bash"], user)
    assert (profile.name, profile.inject, profile.path) == ("shell", "auto", path)


def test_the_users_profiles_come_first_and_inherit_the_generic_rules(user: Home) -> None:
    write(user, "mine", 'name = "mine"\ncommands = ["bash", "my-*"]\nquestions = ["^Really"]\nprefix = "%"\n')
    for command in ("bash", "my-agent"):
        profile = for_command([command], user)
        assert (profile.name, profile.prefix, profile.inject) == ("mine", "%", "auto")
    assert profile.questions[0].pattern == "^Really"
    assert profile.questions[1:] == load("generic", user).questions
    assert profile.executes == ()


MISTAKES = [
    ('name = "bad"\nreader = \n', 2, "not valid TOML"),
    ('name = "other"\n', 1, "must agree"),
    ('\n\nreader = "eyes"\n', 3, '"auto", "lines" or "screen", not'),
    ('inject = "yes"\n', 1, 'must be "auto" or "never", not'),
    ('# x\nquestions = ["("]\n', 2, "not a regular expression"),
    ("commands = 3\n", 1, "list of strings"),
    ('fullscreen = "no"\n', 1, "true or false"),
    ('prefix = "ab"\n', 1, "one punctuation character"),
    ("colour = 1\n", 1, "unknown key 'colour'"),
    ("[[interactive]]\nwords = 1\n", 1, "needs names"),
    ('[[interactive]]\nnames = ["x"]\nwords = "1"\n', 3, "whole number"),
    ('[[interactive]]\nnames = ["x"]\nwort = 1\n', 3, "unknown key 'wort'. Did you mean words?"),
    ("[interactive]\n", 1, "[[interactive]]"),
    ("echo = 1\n", 1, "echo must be a table, not 1."),
    ('[echo]\nbackgrounds = ["37373"]\n', 2, "is not a colour"),
    ('[echo]\nlines = [\n  "a",\n  "(",\n]\n', 4, "not a regular expression"),
    ("[code]\nshape = 1\n", 2, "The keys are backgrounds, foregrounds, lines"),
    ('[submit]\ndelay = "1"\n', 2, "number of seconds"),
    ("[submit]\ndelay = 11\n", 2, "at most 10, not 11."),
    ('[submit]\nwait = "1"\n', 2, "The keys are delay, avoid"),
    ('[native]\nhooks = "vi"\n', 2, 'must be "", "aider", '),
    ('[resume]\nwords = ["--resume"]\n', 2, "must have one {id}"),
    ('[resume]\nwords = ["{id}", "{id}"]\n', 2, "must have one {id}"),
    ('[resume]\npositional = "task"\n', 2, '"prompt", "other" or "once"'),
    ('[resume]\nkeep = [\n  "-m X",\n  "--model=X",\n]\n', 4, "is not an option"),
    ('[resume]\ndrop = ["-r [X"]\n', 2, "write --name, --name X, --name [X] or --name X..."),
    ('[resume]\nforget = ["-r"]\n', 2, "The keys are words, positional, keep, drop, refuse"),
    ("[states]\n", 1, "[[states]]"),
    (f"{RULE}[[states]]\nname = 'b'\n", 5, "needs a name and a state"),
    (f"{RULE}[[states]]\nname = 'b'\nstate = 'ready'\n", 5, "needs regexes"),
    (f"{RULE}[[states]]\nname = 'b'\nstate = 'idle'\n", 7, 'must be "working", "ready", '),
    (f"{RULE}{RULE}", 6, "two state rules are called 'a'"),
    (f"{RULE}region = 'bottom'\n", 5, '"bottom N"'),
    (f"{RULE}region = 'screen 3'\n", 5, '"bottom N"'),
    (f"{RULE}priority = -1\n", 5, "whole number"),
    (f"{RULE}kind = 'question'\n", 1, "needs a kind; other rules must not have one"),
    (f"{RULE.replace('ready', 'prompting')}", 1, "needs a kind; other rules must not have one"),
    (f"{RULE}{OTHER.replace('x', '(')}", 8, "not a regular expression"),
    ("[errors]\n", 1, "[[errors]]"),
    ("[[errors]]\nclass = 'billing'\n", 1, "needs a class and regexes in match"),
    ("[[errors]]\nmatch = ['x']\n", 1, "needs a class and regexes in match"),
    ("[[errors]]\nclass = 'broke'\nmatch = ['x']\n", 2, 'must be "rate_limited", "unauthorized", '),
    ("[[errors]]\nclass = 'other'\nmatch = ['(']\n", 3, "not a regular expression"),
    ("[[errors]]\nclass = 'other'\nmatch = ['x']\nsource = 'hook'\n", 4, 'must be "text" or "code"'),
    ("[[errors]]\nclass = 'other'\nmatch = ['x']\nreset = ['at (.+)']\n", 4, "(?P<reset>...)"),
    (
        "[[errors]]\nclass = 'other'\nmatch = ['x']\nsource = 'code'\nreset = ['(?P<reset>.)']\n",
        5,
        "a code contains no time",
    ),
    ("error_mark = '('\n", 1, "not a regular expression"),
]


def test_a_mistake_is_reported_with_its_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (text, line, message) in enumerate(MISTAKES):
        with subtests.test(message):
            user = make_user(tmp_path / str(number))
            path = write(user, "bad", text)
            with pytest.raises(ConfigError) as caught:
                profiles(user)
            assert (caught.value.path, caught.value.line) == (path, line)
            assert message in str(caught.value)


def test_all_mistakes_are_reported_at_once(user: Home) -> None:
    path = write(user, "bad", f"reeder = 'auto'\nprompts = ['(', 1, 'x']\n{RULE}priority = -1\n{RULE}")
    with pytest.raises(ConfigMistakes) as caught:
        profiles(user)
    found = [str(each).removeprefix(f"{path}:") for each in caught.value.mistakes]
    assert [each.partition(" ")[0] for each in found] == ["1:", "2:", "2:", "7:"]
    assert "prompts[1] must be a string" in found[2]


AGENTS = ["claude", "codex", "copilot", "gemini", "qwen", "opencode", "pi", "aider"]


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_a_profile_with_rules(user: Home, agent: str) -> None:
    profile = for_command([f"/usr/local/bin/{agent}", "--continue"], user)
    assert (profile.name, profile.reader, profile.inject) == (agent, "screen", "auto")
    assert "working" in {rule.state for rule in profile.states} and profile.says_ready
    assert "!" in profile.submit.avoid and "/" in profile.submit.avoid
    assert 0 < profile.submit.delay < 1


def test_some_agents_have_their_own_hooks(user: Home) -> None:
    hooks = {profile.name: profile.native.hooks for profile in profiles(user) if profile.native.hooks}
    assert hooks == {
        name: name for name in ("claude", "codex", "copilot", "qwen", "gemini", "pi", "opencode")
    }


def test_all_agents_but_aider_can_resume_a_conversation(user: Home) -> None:
    resuming = {profile.name for profile in profiles(user) if profile.resume.words}
    assert resuming == {*AGENTS} - {"aider"}


def test_a_profile_defines_how_to_resume_a_conversation(user: Home) -> None:
    """Options are written as in --help; the user's key replaces the shipped one."""
    write(user, "mine", "[resume]\nkeep = ['-v', '--model X', '--debug [X]', '--add-dir DIRS...', 'a-b Y']\n")
    options = {option.name: option.takes for option in load("mine", user).resume.keep}
    assert options == {
        "-v": "none",
        "--model": "one",
        "--debug": "optional",
        "--add-dir": "several",
        "a-b": "one",
    }
    shipped = load("claude", user).resume
    write(user, "claude", "[resume]\nwords = ['--resume={id}']\npositional = 'other'\n")
    resume = load("claude", user).resume
    assert (resume.words, resume.positional) == (("--resume={id}",), "other")
    assert (resume.keep, resume.drop, resume.refuse) == (shipped.keep, shipped.drop, shipped.refuse)


def test_rules_are_sorted_by_priority_and_the_users_replace_those_with_their_name(user: Home) -> None:
    shipped = load("claude", user).states
    assert [rule.priority for rule in shipped] == sorted((rule.priority for rule in shipped), reverse=True)
    write(
        user,
        "claude",
        "[[states]]\nname = 'dialog'\nstate = 'ready'\npriority = 500\nregion = 'bottom 3'\n"
        "last = ['^>>']\n"
        "[[states]]\nname = 'mine'\nstate = 'prompting'\nkind = 'other'\npriority = 1\nany = ['z']\n",
    )
    states = load("claude", user).states
    assert len(states) == len(shipped) + 1
    assert (states[0].name, states[0].region, states[0].rows) == ("dialog", "bottom", 3)
    assert [pattern.pattern for pattern in states[0].last] == ["^>>"] and states[0].all == ()
    assert states[-1].name == "mine"


def test_a_profile_describes_the_input(user: Home) -> None:
    """Only a profile without a rule for *ready* uses the generic input."""
    write(user, "mine", "[input]\nglyphs = '%'\nbullets = '-'\nplaceholders = ['^Say']\nidle = ['^z']\n")
    mine = load("mine", user).input
    assert mine is not None and (mine.glyphs, mine.bullets) == ("%", "-")
    assert [pattern.pattern for pattern in (*mine.placeholders, *mine.idle)] == ["^Say", "^z"]
    asks = "[[states]]\nname = 'asks'\nstate = 'prompting'\nkind = 'other'\nany = ['z']\n"
    write(user, "asks", asks)
    asking = load("asks", user)
    assert asking.input == load("generic", user).input and asking.says_ready
    write(user, "rules", asks + "[[states]]\nname = 'waits'\nstate = 'ready'\nlast = ['^z']\n")
    assert load("rules", user).input is None
    write(user, "claude", "[input]\nglyphs = '$'\n")
    claude = load("claude", user).input
    assert claude is not None and (claude.glyphs, claude.bullets) == ("$", "●⏺")


def test_a_profile_describes_styles_and_habits(user: Home) -> None:
    write(
        user,
        "mine",
        "[echo]\nbackgrounds = ['373737', '#FFffff']\nlines = ['^> ']\n[code]\nforegrounds = ['00ff00']\n"
        "[submit]\ndelay = 0\navoid = '!#'\n"
        "[native]\nhooks = 'claude'\ntranscript = 'claude'\n",
    )
    profile = load("mine", user)
    assert profile.echo.backgrounds == {0x373737, 0xFFFFFF}
    assert [pattern.pattern for pattern in profile.echo.lines] == ["^> "]
    assert profile.code.foregrounds == {0x00FF00}
    assert (profile.submit.delay, profile.submit.avoid) == (0.0, "!#")
    assert (profile.native.hooks, profile.native.transcript) == ("claude", "claude")
    plain = load("generic", user)
    assert (plain.echo.lines, plain.native.hooks) == ((), "")


def test_overriding_a_key_keeps_the_others_of_its_table(user: Home) -> None:
    shipped = load("claude", user)
    write(user, "claude", "[submit]\ndelay = 1.5\n")
    mine = load("claude", user)
    assert mine.submit.delay == 1.5
    assert mine.submit.avoid == shipped.submit.avoid
    assert (mine.echo, mine.native, mine.states) == (shipped.echo, shipped.native, shipped.states)


def test_errors_keep_their_order_with_the_users_first(user: Home) -> None:
    shipped = load("claude", user)
    assert shipped.error_mark is not None
    assert {rule.source for rule in shipped.errors} == {"text", "code"}
    write(
        user,
        "claude",
        "error_mark = '^!! '\n[[errors]]\nclass = 'billing'\nmatch = ['^No more']\n"
        "[[errors]]\nclass = 'rate_limited'\nmatch = ['^Slow']\nreset = ['until (?P<reset>.+)']\n"
        "[[errors]]\nclass = 'other'\nsource = 'code'\nmatch = ['odd']\n",
    )
    mine = load("claude", user)
    assert mine.error_mark is not None and mine.error_mark.pattern == "^!! "
    assert [(rule.cls, rule.source) for rule in mine.errors[:3]] == [
        ("billing", "text"),
        ("rate_limited", "text"),
        ("other", "code"),
    ]
    assert mine.errors[3:] == shipped.errors
    generic = load("generic", user)
    assert (generic.errors, generic.error_mark) == ((), None)


def test_a_file_that_is_not_text_is_refused(user: Home) -> None:
    (user.config / "patterns" / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        profiles(user)


def test_the_shipped_rules_are_available_despite_an_invalid_user_file(user: Home) -> None:
    rules = load("generic", user).questions
    write(user, "generic", "questions = 1")
    assert fallback().questions == rules != ()


def test_an_unknown_name_is_refused_with_the_known_ones(user: Home) -> None:
    with pytest.raises(ConfigError, match=r"The profiles are .*generic"):
        load("clod", user)


def test_relay_agents_lists_the_profiles(relay: Relay) -> None:
    assert "shell" in relay("agents").stdout
    listed = {entry["name"]: entry for entry in json.loads(relay("agents", "--json").stdout)}
    assert listed["shell"]["inject"] == "never" and "bash" in listed["shell"]["commands"]
    assert (listed["claude"]["hooks"], listed["aider"]["hooks"]) == ("claude", None)
    assert "permission dialog" in listed["claude"]["rules"]
