"""Fleet files: what they may say, what is wrong with them, and whether they are trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from relay.errors import ConfigError, ConfigMistakes, RelayError
from relay.home import Home
from relay.hooks.trust import Trust, digest
from relay.supervision import agent_tables, schema
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.fleet_file import load, parse
from relay.supervision.policy import Action, Supervision
from relay.supervision.schedule import Schedule
from relay.supervision.worktree_spec import WorktreeSpec

LEAD = '[agents.Lead]\nrun = "claude"\n'


def read(folder: Path, text: str) -> Fleet:
    return parse(folder / "relay.toml", text.encode())


def lead(folder: Path, keys: str, before: str = "") -> FleetAgent:
    """Return the agent with these keys, after the text `before`."""
    return read(folder, f"{before}\n{LEAD}{keys}\n").agents["Lead"]


def mistakes(folder: Path, text: str) -> list[str]:
    """Return the mistakes in `text` as `LINE: MESSAGE`, [] for none."""
    try:
        read(folder, text)
    except ConfigMistakes as error:
        path = f"{folder / 'relay.toml'}:"
        assert all(str(each).startswith(path) for each in error.mistakes)
        assert all(str(each) in str(error) for each in error.mistakes)
        return [str(each).removeprefix(path) for each in error.mistakes]
    return []


# -- what a file may say -------------------------------------------------------------------------------------


def test_an_agent_needs_a_command_and_has_defaults_for_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "my shop"
    folder.mkdir()
    fleet = read(folder, LEAD)
    agent = FleetAgent("Lead", ("claude",), folder, supervision=Supervision(restart="on-failure"))
    agent = agent.of(folder / "relay.toml")
    assert fleet == Fleet(folder / "relay.toml", "my-shop", 8, 5.0, {"Lead": agent}, digest(LEAD.encode()))


@pytest.mark.parametrize(
    ("folder", "team"),
    [("web", "web"), ("a b.", "a-b"), ("_x_", "x_"), ("äö", "default"), ("1" * 80, "1" * 64)],
)
def test_the_team_is_named_like_the_folder(tmp_path: Path, folder: str, team: str) -> None:
    assert parse(tmp_path / folder / "relay.toml", b"").team == team
    assert parse(tmp_path / folder / "relay.toml", b"", "default").team == "default"
    assert parse(tmp_path / folder / "relay.toml", b'[fleet]\nteam = "api"').team == "api"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("task = 'Go.'", {"task": "Go."}),
        ("task_file = 'task.md'", {"task": "Do it.\n\nNow."}),
        ("env = { A = '1', b_2 = '' }", {"env": {"A": "1", "b_2": ""}}),
        ("env_file = 'a.env'", {"env": {"A": "1 # no comment", "B": " x ", "C": "a=b", "D": ""}}),
        (
            "env_file = ['a.env', 'b.env']\nenv.C = 'own'",
            {"env": {"A": "2", "B": " x ", "C": "own", "D": ""}},
        ),
        ("channels = ['#ops', 'dev']", {"channels": ("ops", "dev")}),
        ("autostart = false", {"autostart": False}),
        ("schedule = { every = '1h30m' }", {"schedule": Schedule(every=5400)}),
        ("schedule = { every = 90 }", {"schedule": Schedule(every=90)}),
        (
            "schedule = { cron = '0 9 * * 1', timezone = 'Asia/Tokyo', overlap = 'skip', catch_up = true }",
            {"schedule": Schedule(cron="0 9 * * 1", timezone="Asia/Tokyo", catch_up=True)},
        ),
        ("worktree = {}", {"worktree": WorktreeSpec()}),
        ("worktree = false", {"worktree": None}),
        (
            "[agents.Lead.worktree]\npath = '../w/{agent}'\nbranch = 'x'\nbase = 'main'\ncopy = ['.env']\n"
            "link = ['a/b']\nsetup = ['npm ci']\nsetup_timeout = 9\ncleanup = 'merged'",
            {
                "worktree": WorktreeSpec(
                    "../w/{agent}", "x", "main", (".env",), ("a/b",), ("npm ci",), 9.0, "merged"
                )
            },
        ),
    ],
)
def test_the_keys_of_an_agent(tmp_path: Path, keys: str, expected: dict[str, Any]) -> None:
    (tmp_path / "task.md").write_text("Do it.\n\nNow.\n")
    (tmp_path / "a.env").write_text("# one\nA=1 # no comment\n\nexport B=' x '\r\n C = a=b\nD=\n")
    (tmp_path / "b.env").write_text('A="2"')
    agent = lead(tmp_path, keys)
    assert {name: getattr(agent, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("restart = 'always'", {"restart": "always"}),
        ("success_exit_codes = [0, 3]", {"success_exit_codes": (0, 3)}),
        ("max_restarts = 0\nrestart_window = 60", {"max_restarts": 0, "restart_window": 60.0}),
        ("backoff = 0.5\nbackoff_max = 1", {"backoff": 0.5, "backoff_max": 1.0}),
        ("stable_after = 1\nstart_timeout = 2", {"stable_after": 1.0, "start_timeout": 2.0}),
        ("resume = 'require'\naccount = 'work'", {"resume": "require", "account": "work"}),
        ("idle_grace = 0\nmax_unattended_turns = 7", {"idle_grace": 0.0, "max_unattended_turns": 7}),
        (
            "max_cost = 1.5\nmax_tokens = 9\nmax_runtime = 60",
            {"max_cost": 1.5, "max_tokens": 9, "max_runtime": 60},
        ),
        ("on_idle = 'auto'\non_prompt = 'auto'", {"on_idle": None, "on_prompt": None}),
        ("on_idle = 'done'", {"on_idle": Action("done")}),
        ("on_prompt = { action = 'run', run = 'ring' }", {"on_prompt": Action("run", run="ring")}),
        (
            "on_idle = { action = 'nudge', text = 'Go on.', attempts = 2, cooldown = 5, then = 'hold' }",
            {"on_idle": Action("nudge", text="Go on.", attempts=2, cooldown=5.0, then="hold")},
        ),
        (
            "on_error = [{ match = 'rate_limited', action = 'wait' }, { action = 'restart' }]",
            {"on_error": (Action("wait", match="rate_limited"), Action("restart"))},
        ),
        ("[[agents.Lead.on_error]]\naction = 'none'", {"on_error": (Action("none"),)}),
    ],
)
def test_the_supervision_of_an_agent(tmp_path: Path, keys: str, expected: dict[str, Any]) -> None:
    supervision = replace(lead(tmp_path, keys).supervision, fleet="", digest="")
    assert supervision == Supervision(**{"restart": "on-failure", **expected})
    assert Supervision.from_json(json.loads(json.dumps(supervision.to_json()))) == supervision


@pytest.mark.parametrize(
    ("run", "command"),
    [
        ("'claude'", ("claude",)),
        ("""'claude --model "a b" \\x'""", ("claude", "--model", "a b", "x")),
        ("['claude', '', 'a b']", ("claude", "", "a b")),
    ],
)
def test_a_command_is_a_string_or_a_list(tmp_path: Path, run: str, command: tuple[str, ...]) -> None:
    assert read(tmp_path, f"agents.A.run = {run}").agents["A"].command == command


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "hooks.json").write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    agent = lead(tmp_path, "cwd = 'sub'\nrules = ['sub/hooks.json']")
    assert (agent.cwd, agent.rules) == (tmp_path / "sub", (tmp_path / "sub" / "hooks.json",))
    assert lead(tmp_path, "cwd = '~/sub'").cwd == tmp_path / "sub"
    assert lead(tmp_path, "cwd = '/'").cwd == Path("/")
    monkeypatch.chdir(tmp_path)
    assert parse(Path("relay.toml"), b"agents.A.run = 'x'").path == tmp_path / "relay.toml"


def test_dependencies_are_spelt_as_the_agents_are(tmp_path: Path) -> None:
    agents = read(
        tmp_path,
        "agents.db.run = 'x'\nagents.A = { run = 'x', depends_on = ['DB'] }\n"
        "agents.B = { run = 'x', depends_on = { Db = 'exited_ok', a = 'idle' } }",
    ).agents
    assert agents["A"].depends_on == {"db": "ready"}
    assert agents["B"].depends_on == {"db": "exited_ok", "A": "idle"}


def test_an_agent_takes_from_defaults_what_it_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("B=file")
    (tmp_path / "task.md").write_text("From the file.")
    fleet = read(
        tmp_path,
        """
        [agents]
        db = { worktree = false, depends_on = [], env = { A = "db" } }
        Lead = { run = "claude", task_file = "task.md", restart = "no", worktree = { base = "main" } }
        Ann = { on_idle = "auto", env_file = "a.env" }
        [defaults]
        run = "codex"
        task = "Go."
        restart = "always"
        on_idle = "done"
        env = { A = "1", B = "2" }
        depends_on = ["db"]
        worktree = { branch = "b/{agent}", base = "dev" }
        """,
    )
    db, lead, ann = fleet.agents.values()
    assert [agent.command for agent in (db, lead, ann)] == [("codex",), ("claude",), ("codex",)]
    assert [agent.task for agent in (db, lead, ann)] == ["Go.", "From the file.", "Go."]
    assert all(agent.supervision.prompt == agent.task for agent in (db, lead, ann))
    assert [agent.supervision.restart for agent in (db, lead, ann)] == ["always", "no", "always"]
    assert [agent.supervision.on_idle for agent in (db, lead, ann)] == [Action("done"), Action("done"), None]
    assert [dict(agent.env) for agent in (db, lead, ann)] == [
        {"A": "db", "B": "2"},
        {"A": "1", "B": "2"},
        {"A": "1", "B": "file"},
    ]
    assert [dict(agent.depends_on) for agent in (db, lead, ann)] == [{}, {"db": "ready"}, {"db": "ready"}]
    assert [agent.worktree for agent in (db, lead, ann)] == [
        None,
        WorktreeSpec(branch="b/{agent}", base="main"),
        WorktreeSpec(branch="b/{agent}", base="dev"),
    ]


def test_agents_do_not_wait_for_themselves_by_a_default(tmp_path: Path) -> None:
    agents = read(
        tmp_path, "defaults = { run = 'x', depends_on = ['db'] }\nagents = { db = {}, A = {} }"
    ).agents
    assert (agents["db"].depends_on, agents["A"].depends_on) == ({}, {"db": "ready"})


def test_settings_may_stand_in_the_same_file(tmp_path: Path) -> None:
    assert list(read(tmp_path, f"idle_seconds = 5\n{LEAD}").agents) == ["Lead"]


def test_the_digest_of_an_agent_changes_with_any_of_it(tmp_path: Path) -> None:
    def digest(keys: str, before: str = "") -> str:
        supervision = lead(tmp_path, keys, before).supervision
        assert supervision.fleet == str(tmp_path / "relay.toml")
        return supervision.digest

    task = tmp_path / "task.md"
    task.write_text("one")
    before = digest("task_file = 'task.md'")
    assert digest("task = 'one'", before="[fleet]\nmax_running = 1") == before
    assert digest("task = 'one'\nenv = { A = '' }") != before
    assert digest("task = 'one'\nmax_cost = 1") != before
    task.write_text("two")
    assert digest("task_file = 'task.md'") != before


def test_the_environment_is_not_shown(tmp_path: Path) -> None:
    assert "sesame" not in repr(lead(tmp_path, "env = { KEY = 'sesame' }"))
    assert not [
        each for each in mistakes(tmp_path, f"{LEAD}env = {{ KEY = ['sesame'] }}") if "sesame" in each
    ]
    (tmp_path / "x.env").write_text("sesame\n1A=sesame\nRELAY_NAME=sesame\n")
    with pytest.raises(ConfigMistakes) as raised:
        lead(tmp_path, "env_file = 'x.env'")
    assert "sesame" not in str(raised.value).replace("'sesame'", "")
    assert [(each.path, each.line) for each in raised.value.mistakes] == [
        (tmp_path / "x.env", line) for line in (1, 2, 3)
    ]


# -- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[fleet]\nmax_runing = 3", "2: there is no key 'max_runing' here. Did you mean max_running?"),
        (
            "[fleet]\nzzz = 3",
            "2: there is no key 'zzz' here. The keys are team, max_running, start_interval.",
        ),
        ("[fleet]\nmax_running = -1", "2: max_running must be a whole number, 0 or more, not -1."),
        ("[fleet]\nmax_running = true", "2: max_running must be a whole number, 0 or more, not true."),
        ("[fleet]\nteam = 'a b'", "2: team: 'a b' is not a valid team;"),
        ("fleet = 3", "1: fleet must be a table, not 3."),
        ("agents = 3", "1: agents are tables, such as [agents.Lead]."),
        ("defaults = []", "1: defaults must be a table, not a list."),
        ("defaults = ['run']\nagents.A = {}", "2: A has no command."),
        ("agents.Lead = 'claude'", "1: agents.Lead must be a table, not 'claude'."),
        ("idle_second = 3", "1: there is no setting 'idle_second'. Did you mean idle_seconds?"),
        ("idle_seconds = -3", "1: idle_seconds is a number of seconds from 0 to 3600"),
        ("\n[agent.Lead]\nrun = 'x'", "2: there is no setting 'agent'. Did you mean agents?"),
        ("max_running = 3", "1: max_running is not a setting. It belongs below [fleet]."),
        ("restart = 'no'", "1: restart is not a setting. It belongs below [defaults] or [agents.NAME]."),
        (
            LEAD + "idle_seconds = 3",
            "3: there is no key 'idle_seconds' here. It is a setting, and belongs above",
        ),
        (LEAD + "max_running = 3", "3: there is no key 'max_running' here. It belongs below [fleet]."),
        (LEAD + "agents = {}", "3: there is no key 'agents' here. Write it as a table of its own"),
        (LEAD + "restrat = 'no'", "3: there is no key 'restrat' here. Did you mean restart?"),
        (
            LEAD + "restart = 'allways'",
            '3: restart must be "no", "on-failure" or "always", not \'allways\'. Did',
        ),
        (LEAD + "restart = false", '3: restart must be "no", "on-failure" or "always", not false.'),
        ("[agents.Lead]\ntask = 'x'", '1: Lead has no command. Add run, like run = "claude".'),
        ('agents.Lead.run = "claude \'x"', "1: run: "),
        ("agents.Lead.run = ''", '1: run names no program; write one, like "claude".'),
        ("agents.Lead.run = []", '1: run names no program; write one, like "claude".'),
        ("agents.Lead.run = ['a', 1]", "1: run must be a string, split into words as sh does, or a list of"),
        ('agents.Lead.run = "a\\u0000"', "1: run has a NUL character"),
        ("agents.you.run = 'x'", "1: the name 'you' is reserved"),
        ("agents.'a b'.run = 'x'", "1: 'a b' is not a valid name"),
        (LEAD + "\n[agents.lead]\nrun = 'x'", "4: 'lead' and 'Lead' (line 1) are the same name"),
        (LEAD + "cwd = 'nowhere'", "3: cwd: {folder}/nowhere does not exist."),
        (LEAD + f"cwd = '{'a' * 5000}'", "3: cwd: {folder}/aaaa"),
        (LEAD + "cwd = 'file'", "3: cwd: {folder}/file is not a folder."),
        (LEAD + "cwd = '~nobody-here/x'", "3: cwd: '~nobody-here/x' names no home folder."),
        (LEAD + "task = 1", "3: task must be a string, not 1."),
        (LEAD + "task = ''\ntask_file = 'file'", "4: there is a task and a task_file. Take out one of them."),
        (LEAD + f"task = '{'x' * 32769}'", "3: task must be at most 32 KB. Have the agent read"),
        (LEAD + "task_file = 'long'", "3: task_file must be at most 32 KB."),
        (LEAD + "task_file = 'nothing'", "3: task_file: {folder}/nothing does not exist."),
        (LEAD + "task_file = 'latin1'", "3: task_file: {folder}/latin1: is not UTF-8 (byte 1)."),
        (LEAD + "task_file = 'pipe'", "3: task_file: {folder}/pipe is not a file."),
        (LEAD + "rules = ['nothing']", "3: rules[0]: {folder}/nothing does not exist."),
        (LEAD + "channels = ['#ops', '#a b']", "3: channels[1]: 'a b' is not a valid channel"),
        (LEAD + "channels = [\n'#ops',\n'#a b']", "5: channels[1]: 'a b' is not"),
        (LEAD + "channels = '#ops'", "3: channels must be a list of channels, not '#ops'."),
        (LEAD + "env = []", "3: env must be a table of strings, not a list."),
        (LEAD + "[agents.Lead.env]\nA = 1", "4: env.A must be a string. Put it in quotes."),
        (LEAD + "env = { 'a-b' = '' }", "3: env: 'a-b' is not a variable's name"),
        (LEAD + "env = { RELAY_NAME = 'x' }", "3: env: RELAY_NAME is set by relay itself."),
        (LEAD + "autostart = 'no'", "3: autostart must be true or false, not 'no'."),
        (
            LEAD + "success_exit_codes = [0, 256]",
            "3: success_exit_codes[1] must be at most 255, not 256",
        ),
        (LEAD + "backoff = 700", "1: backoff is larger than backoff_max."),
        (LEAD + "backoff_max = 1e9", "3: backoff_max must be at most 31,536,000, not 1000000000.0."),
        (
            LEAD + "success_exit_codes = ['0']",
            "3: success_exit_codes must be a list of numbers",
        ),
        (LEAD + "max_cost = nan", "3: max_cost must be a number of US dollars, 0 or more, not nan."),
        (LEAD + "on_idle = 'nudgе'", "3: on_idle must be "),
        (
            LEAD + "on_idle = 'gate'",
            '3: on_idle: gate needs a command, like { action = "gate", run = "make test" }',
        ),
        (LEAD + "on_idle = { run = 'x' }", "3: on_idle needs an action, like"),
        (
            LEAD + "on_idle = { action = 'done', run = 'x' }",
            "3: on_idle: run belongs to gate and run, not to done.",
        ),
        (
            LEAD + "on_idle = { action = 'gate', run = 'x', text = 'y' }",
            "3: on_idle: text belongs to nudge, not",
        ),
        (LEAD + "on_idle = { action = 'done', then = 'nudge' }", "3: on_idle.then must be "),
        (
            LEAD + "on_idle = { action = 'done', attempts = 0 }",
            "3: on_idle.attempts must be a whole number, 1 or",
        ),
        (LEAD + "on_idle = { action = 'done', match = 'x' }", "3: there is no key 'match' here."),
        (LEAD + "on_prompt = 'nudge'", "3: on_prompt must be "),
        (LEAD + "on_error = 'wait'", "3: on_error must be a list of tables, not 'wait'."),
        (LEAD + "on_error = [\n{ action = 'wait' },\n{ action = 'wiat' }]", "5: on_error[1].action must be "),
        (
            LEAD + "on_error = [{ action = 'wait', match = 'A b' }]",
            "3: on_error[0].match must be ",
        ),
        (LEAD + "schedule = 'x'", "3: schedule must be a table, not 'x'."),
        (LEAD + "schedule = {}", '3: schedule needs either every or cron, like { every = "1h" }.'),
        (LEAD + "schedule = { every = '1 h' }", "3: schedule.every: '1 h' is not a duration"),
        (
            LEAD + "schedule = { every = 0 }",
            "3: schedule.every must be a number of seconds, 1 or more, not 0.",
        ),
        (LEAD + "schedule = { every = '1h', timezone = 'UTC' }", "3: schedule: timezone belongs to cron."),
        (
            LEAD + "schedule = { cron = '61 * * * *' }",
            "3: schedule.cron: '61 * * * *' is not a cron expression",
        ),
        (
            LEAD + "schedule = { cron = '* * * * *', timezone = 'Mars/X' }",
            "3: schedule.timezone: there is no time",
        ),
        (
            LEAD + "schedule = { cron = '* * * * *', overlap = 'run' }",
            '3: schedule.overlap must be "skip", not',
        ),
        (LEAD + "worktree = true", "3: worktree must be a table, not true."),
        (
            LEAD + "worktree = { path = '{name}' }",
            "3: worktree.path: only {repo}, {branch}, {agent} are filled in",
        ),
        (LEAD + "worktree = { branch = '{' }", "3: worktree.branch: '{': "),
        (LEAD + "worktree = { branch = '' }", "3: worktree.branch: it is empty."),
        (
            LEAD + "worktree = { copy = ['/etc/x'] }",
            "3: worktree.copy[0] must be a path within the repository",
        ),
        (
            LEAD + "worktree = { link = ['a/../../x'] }",
            "3: worktree.link[0] must be a path within the repository",
        ),
        (
            LEAD + "worktree = { setup = 'npm ci' }",
            "3: worktree.setup must be a list of strings, not 'npm ci'.",
        ),
        (LEAD + "depends_on = 'db'", '3: depends_on must be a table like { db = "ready" }, or a list'),
        (
            LEAD + "depends_on = ['Led']\nagents.x = {}",
            "3: depends_on: there is no agent 'Led'. Did you mean Lead?",
        ),
        (LEAD + "depends_on = { Lead = 'redy' }", "3: depends_on.Lead must be "),
        (LEAD + "depends_on = ['lead']", "3: none of these can start first: Lead → Lead."),
        (
            "[defaults]\ndepends_on = ['x']\n" + LEAD,
            "2: depends_on: there is no agent 'x'. The agents are Lead.",
        ),
        ("[defaults]\nrestart = 1\n" + LEAD + "restart = 'no'", "2: restart must be "),
    ],
)
def test_a_mistake_has_its_line_and_advice(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "latin1").write_bytes(b"\xff")
    (tmp_path / "long").write_text("x" * 32769)
    os.mkfifo(tmp_path / "pipe")
    expected = expected.replace("{folder}", str(tmp_path))
    found = mistakes(tmp_path, text)
    assert [each for each in found if each.startswith(expected)], found


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = "x = 1\n[agents.A]\nrun = 'x'\nrestart = 1\ntask = 2\n[defaults]\nresume = 3\n[fleet]\nteam = 4\n"
    assert [each.partition(":")[0] for each in mistakes(tmp_path, text)] == ["1", "4", "5", "7", "9"]


def test_one_mistake_needs_no_heading(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes) as raised:
        read(tmp_path, "agents.A.run = 1")
    assert str(raised.value).startswith(f"{tmp_path}/relay.toml:1: run must be ")
    assert raised.value.line == 1


def test_the_line_is_that_of_the_key_in_its_own_table(tmp_path: Path) -> None:
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


def test_agents_that_wait_for_one_another_are_named(tmp_path: Path) -> None:
    text = "\n".join(
        f"[agents.{name}]\nrun = 'x'\ndepends_on = ['{other}']" for name, other in ("ab", "bc", "cb", "db")
    )
    (found,) = mistakes(tmp_path, text)
    assert found in (
        "6: none of these can start first: b → c → b. Take out a dependency.",
        "9: none of these can start first: c → b → c. Take out a dependency.",
    )


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"[agents.A]\nrun = \n", 2, "not valid TOML: Invalid value"),
        (b"[agents.A]\nrun = 'x'\nrun = 'y'\n", 3, "not valid TOML: Cannot overwrite a value"),
        (b"a = '\xff'", None, "is not UTF-8 (byte 6)."),
        (b"a = " + b"[" * 5000 + b"]" * 5000, None, "nested too deeply"),
    ],
)
def test_what_is_not_toml_has_no_fleet(tmp_path: Path, content: bytes, line: int | None, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(tmp_path / "relay.toml", content)
    assert (raised.value.line, said in str(raised.value)) == (line, True), str(raised.value)


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


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["A", "B", "a", "you", ""]), st.dictionaries(KEYS, VALUES, max_size=4))
)
@example({"A": {"run": "x", "schedule": {"cron": "* * * * 1#2/3"}}})
def test_any_values_give_a_fleet_or_mistakes_with_lines(tables: dict[str, dict[str, Any]]) -> None:
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


# -- the schema ----------------------------------------------------------------------------------------------


def test_every_field_of_the_dataclasses_has_a_key() -> None:
    others = {"prompt", "fresh", "fleet", "digest"}
    assert {each.name for each in fields(Supervision)} - others == schema.SUPERVISION_KEYS.keys()
    assert {each.name for each in fields(WorktreeSpec)} == agent_tables.WORKTREE_KEYS.keys()
    assert {each.name for each in fields(Schedule)} == agent_tables.SCHEDULE_KEYS.keys()
    assert {each.name for each in fields(Action)} == agent_tables.ACTION_KEYS.keys()


def test_each_default_is_what_the_file_gets_without_the_key(tmp_path: Path) -> None:
    keys = {name: key for name, key in schema.AGENT_KEYS.items() if key.default}
    text = LEAD + "\n".join(f"{name} = {key.default}" for name, key in keys.items())
    assert len(keys) > 25
    assert read(tmp_path, text).agents == read(tmp_path, LEAD).agents
    tables = "[fleet]\n" + "\n".join(
        f"{name} = {key.default}" for name, key in schema.FLEET_KEYS.items() if key.default
    )
    with_keys, without = read(tmp_path, tables), read(tmp_path, "")
    assert (with_keys.max_running, with_keys.start_interval) == (without.max_running, without.start_interval)


# -- which file, and trust -----------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Home:
    home = Home(str(tmp_path / "config"), str(tmp_path / "state"), str(tmp_path / "run"))
    home.config.mkdir()
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / ".git").mkdir()
    return folder


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(RelayError) as raised:
        call()
    return str(raised.value)


def test_a_projects_file_needs_trust_in_exactly_its_content(own: Home, project: Path) -> None:
    path = project / "relay.toml"
    path.write_text(LEAD)
    refused = (
        f"{path}: is not trusted, so none of its agents was started. Read it, then run `relay trust {path}`."
    )
    assert refusal(lambda: load(own, project / "sub")) == refused
    Trust(own).grant(path, path.read_bytes())
    fleet = load(own, project / "sub")
    assert (list(fleet.agents), fleet.path, fleet.team) == (["Lead"], path, "project")
    path.write_text(LEAD + "task = 'x'\n")
    assert refusal(lambda: load(own, project)) == refused


def test_naming_a_file_grants_no_trust(own: Home, project: Path) -> None:
    path = project / "other.toml"
    path.write_text(LEAD)
    assert "other.toml: is not trusted" in refusal(lambda: load(own, project, path))
    Trust(own).grant(path, path.read_bytes())
    assert load(own, project, path).path == path


def test_the_users_own_file_needs_no_trust(own: Home, project: Path) -> None:
    path = own.config / "relay.toml"
    assert "there is no relay.toml in this folder or the project around it" in refusal(
        lambda: load(own, project)
    )
    path.write_text(LEAD)
    fleet = load(own, project)
    assert (fleet.path, fleet.team) == (path, "default")
    assert load(own, project, path) == fleet
    (project / "relay.toml").write_text(LEAD)  # the project's wins, and has to be trusted
    assert "is not trusted" in refusal(lambda: load(own, project))


def test_a_file_without_agents_and_one_that_is_no_file_are_refused(own: Home, project: Path) -> None:
    path = own.config / "relay.toml"
    path.write_text("idle_seconds = 5\n[fleet]\n")
    assert "has no agents. Add a table, such as [agents.Lead]" in refusal(lambda: load(own, project))
    assert "cannot be read: No such file" in refusal(lambda: load(own, project, project / "missing.toml"))
    os.mkfifo(project / "pipe.toml")
    assert "cannot be read" in refusal(lambda: load(own, project, project / "pipe.toml"))
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert "has more than 1 MB" in refusal(lambda: load(own, project))
