"""Mistakes in fleet files are reported with their line and advice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from relay.errors import ConfigError, ConfigMistakes
from relay.supervision import agent_tables, schema
from relay.supervision.fleet_file import parse
from supervision.fleets import LEAD, mistakes, read
from support import many

MISTAKES = [
    ("[fleet]\nmax_runing = 3", "2: unknown key 'max_runing'. Did you mean max_running?"),
    (
        "[fleet]\nzzz = 3",
        "2: unknown key 'zzz'. The keys are team, max_running, start_interval, spawn.",
    ),
    ("[fleet]\nmax_running = -1", "2: max_running must be a whole number, 0 or more, not -1."),
    ("[fleet]\nmax_running = true", "2: max_running must be a whole number, 0 or more, not true."),
    ("[fleet]\nteam = 'a b'", "2: team: 'a b' is not a valid team;"),
    ("fleet = 3", "1: fleet must be a table, not 3."),
    ("agents = 3", "1: agents must be tables, such as [agents.Lead]."),
    ("defaults = []", "1: defaults must be a table, not a list."),
    ("defaults = ['run']\nagents.A = {}", "2: A has no command."),
    ("agents.Lead = 'claude'", "1: agents.Lead must be a table, not 'claude'."),
    ("idle_second = 3", "1: unknown setting 'idle_second'. Did you mean idle_seconds?"),
    ("idle_seconds = -3", "1: idle_seconds must be a number of seconds from 0 to 3600"),
    ("\n[agent.Lead]\nrun = 'x'", "2: unknown setting 'agent'. Did you mean agents?"),
    ("max_running = 3", "1: unknown setting 'max_running'. It belongs below [fleet]."),
    ("restart = 'no'", "1: unknown setting 'restart'. It belongs below [defaults] or [agents.NAME]."),
    ("[agents.Lead]\ntask = 'x'", '1: Lead has no command. Add run, like run = "claude".'),
    ('agents.Lead.run = "claude \'x"', "1: run: "),
    ("agents.Lead.run = ''", '1: run names no program; write one, like "claude".'),
    ("agents.Lead.run = []", '1: run names no program; write one, like "claude".'),
    ("agents.Lead.run = ['a', 1]", "1: run must be a string, split into words as sh does, or a list of"),
    ('agents.Lead.run = "a\\u0000"', "1: run has a NUL character"),
    ("agents.you.run = 'x'", "1: the name 'you' is reserved"),
    ("agents.Spawn.run = 'x'", "1: the name 'Spawn' is reserved"),
    ("agents.release.run = 'x'", "1: the name 'release' is reserved"),
    ("[fleet]\nspawn = 1", "2: spawn must be true or false, not 1"),
    ("agents.'a b'.run = 'x'", "1: 'a b' is not a valid name"),
    (
        "[defaults]\ndepends_on = ['x']\n" + LEAD,
        "2: depends_on: there is no agent 'x'. The agents are Lead.",
    ),
    ("[defaults]\nrestart = 1\n" + LEAD + "restart = 'no'", "2: restart must be "),
]


def check(folder: Path, text: str, expected: str) -> None:
    """Check that the fleet file `text` in the new `folder` has the expected mistake."""
    folder.mkdir()
    (folder / "file").write_text("x")
    (folder / "latin1").write_bytes(b"\xff")
    (folder / "long").write_text("x" * 32769)
    os.mkfifo(folder / "pipe")
    expected = expected.replace("{folder}", str(folder))
    found = mistakes(folder, text)
    assert [each for each in found if each.startswith(expected)], found


def test_each_mistake_is_reported_with_its_line_and_advice(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (text, expected) in enumerate(MISTAKES):
        with subtests.test(expected):
            check(tmp_path / str(number), text, expected)


AGENT_MISTAKES = [
    ("idle_seconds = 3", "3: unknown key 'idle_seconds'. It is a setting: put it above"),
    ("max_running = 3", "3: unknown key 'max_running'. It belongs below [fleet]."),
    ("agents = {}", "3: unknown key 'agents'. Write it as its own table"),
    ("restrat = 'no'", "3: unknown key 'restrat'. Did you mean restart?"),
    ("restart = 'allways'", '3: restart must be "no", "on-failure" or "always", not \'allways\'. Did'),
    ("restart = false", '3: restart must be "no", "on-failure" or "always", not false.'),
    ("\n[agents.lead]\nrun = 'x'", "4: 'lead' and 'Lead' (line 1) are the same name"),
    ("cwd = 'nowhere'", "3: cwd: {folder}/nowhere does not exist."),
    (f"cwd = '{'a' * 5000}'", "3: cwd: {folder}/aaaa"),
    ("cwd = 'file'", "3: cwd: {folder}/file is not a folder."),
    ("cwd = '~nobody-here/x'", "3: cwd: '~nobody-here/x' names no home folder."),
    ("task = 1", "3: task must be a string, not 1."),
    ("task = ''\ntask_file = 'file'", "4: it has both task and task_file. Remove one of them."),
    (f"task = '{'x' * 32769}'", "3: task must be at most 32 KB. Let the agent read"),
    ("task_file = 'long'", "3: task_file must be at most 32 KB."),
    ("task_file = 'nothing'", "3: task_file: {folder}/nothing does not exist."),
    ("task_file = 'latin1'", "3: task_file: {folder}/latin1: is not UTF-8 (byte 1)."),
    ("task_file = 'pipe'", "3: task_file: {folder}/pipe is not a file."),
    ("rules = ['nothing']", "3: rules[0]: {folder}/nothing does not exist."),
    ("channels = ['#ops', '#a b']", "3: channels[1]: 'a b' is not a valid channel"),
    ("channels = [\n'#ops',\n'#a b']", "5: channels[1]: 'a b' is not"),
    ("channels = '#ops'", "3: channels must be a list of channels, not '#ops'."),
    ("env = []", "3: env must be a table of strings, not a list."),
    ("[agents.Lead.env]\nA = 1", "4: env.A must be a string. Put it in quotes."),
    ("env = { 'a-b' = '' }", "3: env: 'a-b' is not a variable's name"),
    ("env = { RELAY_NAME = 'x' }", "3: env: RELAY_NAME is set by relay itself."),
    ("autostart = 'no'", "3: autostart must be true or false, not 'no'."),
    ("success_exit_codes = [0, 256]", "3: success_exit_codes[1] must be at most 255, not 256"),
    ("backoff = 700", "1: backoff is larger than backoff_max."),
    ("backoff_max = 1e9", "3: backoff_max must be at most 31,536,000, not 1000000000.0."),
    ("success_exit_codes = ['0']", "3: success_exit_codes must be a list of numbers"),
    ("max_cost = nan", "3: max_cost must be a number of US dollars, 0 or more, not nan."),
    ("on_idle = 'nudgе'", "3: on_idle must be "),
    ("on_idle = 'gate'", '3: on_idle: gate needs a command, like { action = "gate", run = "make test" }'),
    ("on_idle = { run = 'x' }", "3: on_idle needs an action, like"),
    ("on_idle = { action = 'done', run = 'x' }", "3: on_idle: run belongs to gate and run, not to done."),
    ("on_idle = { action = 'gate', run = 'x', text = 'y' }", "3: on_idle: text belongs to nudge, not"),
    ("on_idle = { action = 'done', then = 'nudge' }", "3: on_idle.then must be "),
    ("on_idle = { action = 'done', attempts = 0 }", "3: on_idle.attempts must be a whole number, 1 or"),
    ("on_idle = { action = 'done', match = 'x' }", "3: unknown key 'match'."),
    ("on_prompt = 'nudge'", "3: on_prompt must be "),
    ("on_error = 'wait'", "3: on_error must be a list of tables, not 'wait'."),
    ("on_error = [\n{ action = 'wait' },\n{ action = 'wiat' }]", "5: on_error[1].action must be "),
    ("on_error = [{ action = 'wait', match = 'A b' }]", "3: on_error[0].match must be "),
    ("schedule = 'x'", "3: schedule must be a table, not 'x'."),
    ("schedule = {}", '3: schedule needs either every or cron, like { every = "1h" }.'),
    ("schedule = { every = '1 h' }", "3: schedule.every: '1 h' is not a duration"),
    ("schedule = { every = 0 }", "3: schedule.every must be a number of seconds, 1 or more, not 0."),
    ("schedule = { every = '1h', timezone = 'UTC' }", "3: schedule: timezone works only with cron."),
    ("schedule = { cron = '61 * * * *' }", "3: schedule.cron: '61 * * * *' is not a cron expression"),
    ("schedule = { cron = '* * * * *', timezone = 'Mars/X' }", "3: schedule.timezone: not a known time"),
    ("schedule = { cron = '* * * * *', overlap = 'run' }", '3: schedule.overlap must be "skip", not'),
    ("worktree = 1", "3: worktree must be a table, not 1."),
    ("worktree = { path = '{name}' }", "3: worktree.path: only {repo}, {branch}, {agent} are replaced"),
    ("worktree = { branch = '{' }", "3: worktree.branch: '{': "),
    ("worktree = { branch = '' }", "3: worktree.branch: it is empty."),
    ("worktree = { copy = ['/etc/x'] }", "3: worktree.copy[0] must be a path within the repository"),
    ("worktree = { link = ['a/../../x'] }", "3: worktree.link[0] must be a path within the repository"),
    ("worktree = { setup = 'npm ci' }", "3: worktree.setup must be a list of strings, not 'npm ci'."),
    ("depends_on = 'db'", '3: depends_on must be a table like { db = "ready" }, or a list'),
    ("depends_on = ['Led']\nagents.x = {}", "3: depends_on: there is no agent 'Led'. Did you mean Lead?"),
    ("depends_on = { Lead = 'redy' }", "3: depends_on.Lead must be "),
    ("depends_on = ['lead']", "3: none of these can start first: Lead → Lead."),
]


def test_each_mistake_in_an_agent_is_reported_with_its_line_and_advice(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (keys, expected) in enumerate(AGENT_MISTAKES):
        with subtests.test(expected):
            check(tmp_path / str(number), LEAD + keys, expected)


def test_all_mistakes_are_reported_at_once_in_line_order(tmp_path: Path) -> None:
    text = "x = 1\n[agents.A]\nrun = 'x'\nrestart = 1\ntask = 2\n[defaults]\nresume = 3\n[fleet]\nteam = 4\n"
    assert [each.partition(":")[0] for each in mistakes(tmp_path, text)] == ["1", "4", "5", "7", "9"]


def test_a_single_mistake_has_no_heading(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes) as raised:
        read(tmp_path, "agents.A.run = 1")
    assert str(raised.value).startswith(f"{tmp_path}/relay.toml:1: run must be ")
    assert raised.value.line == 1


def test_the_line_of_a_key_is_found_in_its_own_table(tmp_path: Path) -> None:
    text = """
# restart = 1
[defaults]
task = '''
restart = 2
'''
[agents.A]
run = "x"
[agents.A.env]
restart = "3"
[agents.B]
run = "restart = 4"
"restart" = 5
[agents]
C.run = "x"
C.'restart' = 6
D = { run = "x", env = { restart = "7" }, restart = 8 }
"""
    assert [each.partition(":")[0] for each in mistakes(tmp_path, text)] == ["13", "16", "17"]


def test_a_dependency_cycle_is_reported_with_its_agents(tmp_path: Path) -> None:
    text = "\n".join(
        f"[agents.{name}]\nrun = 'x'\ndepends_on = ['{other}']" for name, other in ("ab", "bc", "cb", "db")
    )
    (found,) = mistakes(tmp_path, text)
    assert found in (
        "6: none of these can start first: b → c → b. Remove a dependency.",
        "9: none of these can start first: c → b → c. Remove a dependency.",
    )


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"[agents.A]\nrun = \n", 2, "not valid TOML: Invalid value"),
        (b"[agents.A]\nrun = 'x'\nrun = 'y'\n", 3, "not valid TOML: Cannot overwrite a value"),
        (b"a = '\xff'", None, "is not UTF-8 (byte 6)."),
        (b"a = " + b"[" * 5000 + b"]" * 5000, None, "nested too deeply"),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, content: bytes, line: int | None, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(tmp_path / "relay.toml", content)
    assert (raised.value.line, message in str(raised.value)) == (line, True), str(raised.value)


KEYS = st.sampled_from(
    [
        *schema.AGENT_KEYS,
        *agent_tables.ACTION_KEYS,
        *agent_tables.SCHEDULE_KEYS,
        *agent_tables.WORKTREE_KEYS,
        "x",
    ]
)
VALUES = st.recursive(
    st.sampled_from(
        [0, -1, 1.5, True, "", "auto", "gate", "no", "1h", "* * * * 1#2/3", "{x", ".", "A", "\0", "../x"]
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)


@hypothesis_settings(max_examples=many(150))
@given(
    st.dictionaries(st.sampled_from(["A", "B", "a", "you", ""]), st.dictionaries(KEYS, VALUES, max_size=4))
)
@example({"A": {"run": "x", "schedule": {"cron": "* * * * 1#2/3"}}})
def test_any_values_are_read_or_reported_with_their_lines(tables: dict[str, dict[str, Any]]) -> None:
    lines = []
    for name, keys in tables.items():
        lines += [f'[agents."{name}"]', *(f"{key} = {toml(value)}" for key, value in keys.items())]
    text = "\n".join(lines)
    assert tomli.loads(text).get("agents", {}) == tables
    try:
        fleet = parse(Path("/nowhere/relay.toml"), text.encode())
    except ConfigMistakes as error:
        assert all(each.line and 1 <= each.line <= text.count("\n") + 1 for each in error.mistakes)
    else:
        assert list(fleet.agents) == list(tables)
        assert all(len(agent.supervision.digest) == 64 for agent in fleet.agents.values())


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)
