"""What a fleet file may contain."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from relay.errors import ConfigMistakes
from relay.hooks.trust import digest
from relay.supervision import agent_tables, schema
from relay.supervision.fleet import Fleet, FleetAgent
from relay.supervision.fleet_file import parse
from relay.supervision.policy import Action, Supervision
from relay.supervision.schedule import Schedule
from relay.supervision.worktree import WorktreeSpec
from supervision.fleets import LEAD, lead, mistakes, read


def test_an_agent_needs_only_a_command(tmp_path: Path) -> None:
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
def test_the_team_is_named_after_the_folder(tmp_path: Path, folder: str, team: str) -> None:
    assert parse(tmp_path / folder / "relay.toml", b"").team == team
    assert parse(tmp_path / folder / "relay.toml", b"", "default").team == "default"
    assert parse(tmp_path / folder / "relay.toml", b'[fleet]\nteam = "api"').team == "api"


AGENT_KEYS = [
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
    ("worktree = true", {"worktree": WorktreeSpec()}),
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
]


def test_each_key_of_an_agent_is_read(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (keys, expected) in enumerate(AGENT_KEYS):
        with subtests.test(keys):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "task.md").write_text("Do it.\n\nNow.\n")
            (folder / "a.env").write_text("# one\nA=1 # no comment\n\nexport B=' x '\r\n C = a=b\nD=\n")
            (folder / "b.env").write_text('A="2"')
            agent = lead(folder, keys)
            assert {name: getattr(agent, name) for name in expected} == expected


SUPERVISION_KEYS = [
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
]


def test_each_key_of_supervision_is_read(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for keys, expected in SUPERVISION_KEYS:
        with subtests.test(keys):
            supervision = replace(lead(tmp_path, keys).supervision, fleet="", digest="")
            assert supervision == Supervision(**{"restart": "on-failure", **expected})
            assert Supervision.from_json(json.loads(json.dumps(asdict(supervision)))) == supervision


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


def test_dependencies_match_names_in_any_case(tmp_path: Path) -> None:
    agents = read(
        tmp_path,
        "agents.db.run = 'x'\nagents.A = { run = 'x', depends_on = ['DB'] }\n"
        "agents.B = { run = 'x', depends_on = { Db = 'exited_ok', a = 'idle' } }",
    ).agents
    assert agents["A"].depends_on == {"db": "ready"}
    assert agents["B"].depends_on == {"db": "exited_ok", "A": "idle"}


def test_an_agent_inherits_missing_keys_from_defaults(tmp_path: Path) -> None:
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


def test_a_default_dependency_never_makes_an_agent_wait_for_itself(tmp_path: Path) -> None:
    agents = read(
        tmp_path, "defaults = { run = 'x', depends_on = ['db'] }\nagents = { db = {}, A = {} }"
    ).agents
    assert (agents["db"].depends_on, agents["A"].depends_on) == ({}, {"db": "ready"})


def test_a_fleet_file_may_contain_settings(tmp_path: Path) -> None:
    assert list(read(tmp_path, f"idle_seconds = 5\n{LEAD}").agents) == ["Lead"]


def test_any_change_to_an_agent_changes_its_digest(tmp_path: Path) -> None:
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


def test_values_of_the_environment_are_never_shown(tmp_path: Path) -> None:
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


def test_every_field_of_the_dataclasses_has_a_key() -> None:
    others = {"prompt", "fresh", "fleet", "digest", "spawns", "parent", "model"}
    assert {each.name for each in fields(Supervision)} - others == schema.SUPERVISION_KEYS.keys()
    assert {each.name for each in fields(WorktreeSpec)} == agent_tables.WORKTREE_KEYS.keys()
    assert {each.name for each in fields(Schedule)} == agent_tables.SCHEDULE_KEYS.keys()
    assert {each.name for each in fields(Action)} == agent_tables.ACTION_KEYS.keys()


def test_each_documented_default_is_the_real_one(tmp_path: Path) -> None:
    keys = {name: key for name, key in schema.AGENT_KEYS.items() if key.default}
    text = LEAD + "\n".join(f"{name} = {key.default}" for name, key in keys.items())
    assert len(keys) > 25
    assert read(tmp_path, text).agents == read(tmp_path, LEAD).agents
    tables = "[fleet]\n" + "\n".join(
        f"{name} = {key.default}" for name, key in schema.FLEET_KEYS.items() if key.default
    )
    with_keys, without = read(tmp_path, tables), read(tmp_path, "")
    assert (with_keys.max_running, with_keys.start_interval) == (without.max_running, without.start_interval)
