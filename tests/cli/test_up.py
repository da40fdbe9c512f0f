"""`relay up` and `relay down`: real sessions of tiny programs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.control.fleet_start import starting
from relay.home import Home
from relay.supervision.records import Records
from session.fake_agent import settings
from session.test_session_supervised import record
from supervision.repositories import Repo, needs_git
from support import Relay, processes_of, wait_until


class Fleet(Relay):
    """The command in the module's home, with a team for one test."""

    def __init__(self, home: Path, team: str) -> None:
        super().__init__(home)
        self.team = team


TEAMS = map("web{}".format, itertools.count())


@pytest.fixture
def relay(shared: Relay) -> Iterator[Fleet]:
    fleet = Fleet(shared.home, next(TEAMS))
    yield fleet
    fleet("stop", "--all", "--now", "-t", fleet.team)


@pytest.fixture
def project(relay: Fleet) -> Path:
    folder = relay.home / relay.team
    folder.mkdir()
    return folder


def write(relay: Relay, project: Path, text: str, *, most: int = 8, interval: float = 0) -> None:
    fleet = f'[fleet]\nteam = "{_team(relay)}"\nstart_interval = {interval}\nmax_running = {most}\n'
    (project / "relay.toml").write_text(fleet + text)
    relay("trust", "relay.toml", cwd=project)


def states(relay: Relay, *options: str) -> dict[str, Any]:
    rows = json.loads(relay("ps", "--json", "-t", _team(relay), *options).stdout)
    return {row["name"]: row for row in rows}


def _team(relay: Relay) -> str:
    return relay.team if isinstance(relay, Fleet) else "web"


SECRETIVE = """
[agents.Ann]
run = ["sh", "-c", "cat; : horse"]
task = "zebra"
on_idle = { action = "nudge", text = "zebra" }
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_command_lines_have_only_names(relay: Fleet, project: Path) -> None:
    """Every user of the machine can read them. An agent's own command stands only in the agent's."""
    write(relay, project, SECRETIVE)
    relay("up", cwd=project, check=False)
    words = (
        "--task",
        "zebra",
        "--broker=mqtt://me:zebra@127.0.0.1:1",
        "--broker",
        "mqtt://zebra@127.0.0.1:2",
    )
    relay("wrap", "-d", "-n", "Bob", *words, "cat")
    agent = wait_until(lambda: states(relay).get("Ann", {}).get("agent_pid"))
    lines = processes_of(relay.home)
    assert "horse" in lines.pop(agent)
    assert any(f"-n Ann -t {relay.team}" in line for line in lines.values())
    assert any("-n Bob --task xxxxx --broker=xxx" in line for line in lines.values()), lines
    assert not [line for line in lines.values() if "zebra" in line or "horse" in line]


TWO = """
[agents.db]
run = ["sh", "-c", "echo up; cat"]
[agents.Lead]
run = ["sh", "-c", "pwd > where; echo $COLOUR >> where; cat"]
depends_on = ["db"]
env = { COLOUR = "blue" }
cwd = "lead"
"""


def test_a_configuration_error_is_shown_once_for_the_fleet(relay: Fleet, project: Path) -> None:
    """B6: that of the fleet's folder, and that of an agent's own; before they start, and in the inbox."""
    (project / "lead").mkdir()
    write(relay, project, TWO)
    for folder in (project, project / "lead"):
        (folder / "hooks.json").write_text("{}")
    done = relay("up", "--wait", cwd=project)
    printed = done.stdout + done.stderr
    assert printed.count(f"{project}/hooks.json: is not trusted") == 1
    assert printed.count("lead/hooks.json: is not trusted") == 1

    def mistakes() -> list[str]:
        return [row["text"] for row in json.loads(relay("inbox", "--json", "-t", relay.team).stdout)]

    wait_until(lambda: len(mistakes()) == 2)
    assert all("hooks.json: is not trusted" in text for text in mistakes()) and len({*mistakes()}) == 2


def test_a_fleet_is_started_and_stopped(relay: Fleet, project: Path) -> None:
    (project / "lead").mkdir()
    write(relay, project, TWO)
    output = relay("up", "--wait", cwd=project).stdout
    assert output.index("db is running detached") < output.index("Lead is running detached")
    found = states(relay)
    assert found.keys() == {"db", "Lead"}
    assert {row["wanted"] for row in found.values()} == {"up"}
    wait_until(
        lambda: (project / "lead" / "where").read_text().splitlines() == [str(project / "lead"), "blue"]
    )
    assert relay("up", cwd=project).stdout == "db is already running.\nLead is already running.\n"
    assert states(relay).keys() == {"db", "Lead"}
    assert relay("down", cwd=project).stdout == "Lead has ended.\ndb has ended.\n"
    assert states(relay) == {}
    assert {row["state"] for row in states(relay, "-a").values()} == {"off"}
    assert relay("down", cwd=project).stdout == "Lead is not running.\ndb is not running.\n"
    relay("up", cwd=project)
    assert states(relay).keys() == {"db", "Lead"}


def test_a_message_waits_for_an_agent_that_starts_later(relay: Fleet, project: Path) -> None:
    """The first one knows the names in the fleet file before the others have started."""
    write(
        relay,
        project,
        '[agents.A]\nrun = ["sh", "-c", "echo @relay:B hello; cat"]\n'
        '[agents.B]\nrun = ["sh", "-c", "cat > received"]\ndepends_on = ["A"]\n'
        '[agents.C]\nrun = "cat"\nautostart = false\n',
    )
    relay("up", cwd=project)
    wait_until(lambda: "from A] hello" in (project / "received").read_text())
    refused = relay("send", "-t", relay.team, "C", "hello", check=False)
    assert f"team '{relay.team}' has no agent called 'C'" in refused.stderr


def test_a_stop_outlasts_an_up_and_a_down_of_the_fleet(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = "cat"\n[agents.B]\nrun = "cat"\n')
    relay("up", cwd=project)
    relay("stop", "-t", relay.team, "A")
    assert (
        relay("up", cwd=project).stdout == "A was stopped by you; `relay up A` starts it.\nB is already "
        "running.\n"
    )
    assert states(relay).keys() == {"B"}
    relay("down", cwd=project)
    relay("up", cwd=project)
    assert states(relay).keys() == {"B"}
    relay("up", "A", cwd=project)
    assert states(relay).keys() == {"A", "B"}


def test_a_changed_definition_is_reported_but_not_applied(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = "cat"\n')
    relay("up", cwd=project)
    before = states(relay)["A"]
    write(relay, project, '[agents.A]\nrun = "cat -u"\n')
    output = relay("up", cwd=project).stdout
    assert (
        output
        == "A still runs with its previous definition; `relay down A` and `relay up A` apply the changes.\n"
    )
    assert states(relay)["A"]["agent_pid"] == before["agent_pid"]


def test_agents_that_the_file_no_longer_has_are_named_and_ended(relay: Fleet, project: Path) -> None:
    """They were removed or renamed, or the fleet got another team; the file may have no agents at all."""
    cat = 'run = "cat"\n'
    write(relay, project, f"[agents.A]\n{cat}[agents.B]\n{cat}[agents.Cy]\n{cat}")
    relay("up", cwd=project)
    relay("wrap", "-d", "-t", relay.team, "-n", "Own", "cat", cwd=project)
    write(relay, project, f"[agents.A]\n{cat}[agents.Cyrus]\n{cat}")
    for options in (("--dry-run",), ()):
        said = relay("up", *options, cwd=project).stdout
        for name in ("B", "Cy"):
            assert (
                f"{name} is running, but is no longer in the fleet file; `relay down {name}` ends it." in said
            )
        assert "Own" not in said and "A is already running" in said
    said = relay("down", "B", cwd=project).stdout
    assert said == f"B is no longer in {project / 'relay.toml'}, and is ended, too.\nB has ended.\n"
    refused = relay("down", "B", cwd=project, check=False)
    assert refused.returncode and "there is no agent 'B'" in refused.stderr
    said = relay("down", "--json", cwd=project).stdout
    ended = {row["name"]: row["outcome"] for row in json.loads(said)}
    assert ended == dict.fromkeys(("A", "Cy", "Cyrus"), "ended")
    assert states(relay).keys() == {"Own"}
    relay("up", cwd=project)
    (project / "relay.toml").write_text('[fleet]\nteam = "app"\n')
    relay("trust", "relay.toml", cwd=project)
    relay("down", cwd=project)
    assert states(relay).keys() == {"Own"}
    nothing = relay("down", cwd=project, check=False)
    assert nothing.returncode and "relay.toml: has no agents." in nothing.stderr


def test_a_dry_run_starts_nothing(relay: Fleet, project: Path) -> None:
    (project / "lead").mkdir()
    write(relay, project, TWO)
    output = relay("up", "--dry-run", cwd=project).stdout
    assert output == "db would be started.\nLead would be started once db is ready.\n"
    assert json.loads(relay("up", "--dry-run", "--json", cwd=project).stdout)[1]["action"] == "wait"
    assert states(relay, "-a") == {}


def test_an_agent_that_ends_at_once_is_a_failure(relay: Fleet, project: Path) -> None:
    """Agents that depend on it do not start, and each is reported."""
    write(
        relay,
        project,
        '[agents.A]\nrestart = "no"\nrun = "sh -c \'exit 3\'"\n[agents.B]\nrun = "cat"\ndepends_on = ["A"]\n',
    )
    done = relay("up", "--json", cwd=project, check=False)
    assert done.returncode == 1
    first, second = json.loads(done.stdout)
    assert (first["name"], first["action"], first["code"]) == ("A", "failed", 3)
    assert (second["name"], second["action"]) == ("B", "failed")
    assert "it waits until A is ready, and that exited with 3" in second["text"]
    assert states(relay) == {}


def test_an_agent_waits_until_its_dependency_is_done(relay: Fleet, project: Path) -> None:
    """And does not start if that has failed."""
    script = "while [ ! -e finish ]; do sleep 0.05; done; exit 3"
    write(
        relay,
        project,
        f'[defaults]\nrestart = "no"\n[agents.build]\nrun = ["sh", "-c", "{script}"]\n'
        f'[agents.run]\nrun = "cat"\ndepends_on = {{ build = "done" }}\n',
    )
    up = subprocess.Popen(
        [*relay.command, "up"],
        cwd=project,
        env=relay.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stdout is not None
    assert "run waits until build is done.\n" in iter(up.stdout.readline, "")
    assert states(relay).keys() == {"build"}
    (project / "finish").touch()
    _, output = up.communicate()
    assert up.returncode == 1
    assert states(relay) == {}
    assert "run is not started: it waits until build is done, and that exited with 3." in output


def test_a_chain_of_dependencies_starts_in_order(relay: Fleet, project: Path) -> None:
    """Lead depends on Api, which is not started yet, as it depends on Migrate; that depends on Db."""
    write(
        relay,
        project,
        '[agents.Lead]\nrun = "cat"\ndepends_on = ["Api", "Db"]\n'
        '[agents.Api]\nrun = "cat"\ndepends_on = { Migrate = "exited_ok" }\n'
        '[agents.Migrate]\nrun = ["sh", "-c", "until [ -e gate ]; do sleep 0.02; done"]\n'
        'depends_on = { Db = "started" }\n[agents.Db]\nrun = "cat"\n',
    )
    up = subprocess.Popen(
        [*relay.command, "up"], cwd=project, env=relay.environment, stdout=subprocess.PIPE, text=True
    )
    assert up.stdout is not None
    assert "Api waits until Migrate is exited_ok.\n" in iter(up.stdout.readline, "")
    (project / "gate").touch()
    output = up.communicate()[0]
    assert up.returncode == 0
    assert output.index("Api is running detached") < output.index("Lead is running detached")
    assert states(relay).keys() == {"Db", "Api", "Lead"}


def test_each_shape_of_dependencies_starts_what_it_can(relay: Fleet, project: Path) -> None:
    """Diamonds, chains of agents that end, and failures in the middle; others do not suffer from them."""
    ends = {
        "ok": '["sh", "-c", "exit 0"]',
        "late": '["sh", "-c", "sleep 0.2"]',
        "bad": '["sh", "-c", "exit 4"]',
    }
    shapes = {
        # name: what it runs, and what it depends on
        "Top": ("late", ""),
        "Left": ("cat", '{ Top = "exited_ok" }'),
        "Right": ("ok", '{ Top = "done" }'),
        "Bottom": ("cat", '{ Left = "ready", Right = "done" }'),
        "C1": ("late", ""),
        "C2": ("ok", '{ C1 = "exited_ok" }'),
        "C3": ("cat", '{ C2 = "done", C1 = "done" }'),
        "Brief": ("ok", ""),
        "Besides": ("cat", '{ Brief = "started" }'),
        "Never": ("cat", '["Brief"]'),
        "Bad": ("bad", '{ Left = "started" }'),
        "Below": ("cat", '{ Bad = "exited_ok" }'),
        "Lower": ("cat", '{ Below = "ready", Left = "ready" }'),
    }
    tables = [
        f"[agents.{name}]\nrun = {ends.get(run) or json.dumps(run)}\n"
        + (f"depends_on = {on}\n" if on else "")
        for name, (run, on) in reversed(shapes.items())
    ]
    write(relay, project, '[defaults]\nrestart = "no"\n' + "".join(tables), most=0)
    done = relay("up", cwd=project, check=False)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == [
        "relay: Bad has ended with exit code 4",
        "relay: Below is not started: it waits until Bad is exited_ok, and that exited with 4.",
        "relay: Lower is not started: it waits until Below is ready, and that has not been started.",
        "relay: Never is not started: it waits until Brief is ready, and that exited with 0 "
        '(Brief = "done" waits for its end).',
    ]
    assert states(relay).keys() == {"Left", "Bottom", "C3", "Besides"}
    order = [line.split()[0] for line in done.stdout.splitlines() if "waits until" not in line]
    for name, (_, on) in shapes.items():
        assert all(order.index(each) < order.index(name) for each in shapes if each in on and name in order)


def test_an_earlier_run_of_a_dependency_that_fails_now_does_not_count(relay: Fleet, project: Path) -> None:
    """`relay up` waited for ever."""
    chain = (
        '[agents.Run]\nrun = "cat"\ndepends_on = { Build = "done" }\n'
        '[agents.Build]\nrun = "true"\nrestart = "no"\ndepends_on = { Setup = "exited_ok" }\n'
        '[agents.Setup]\nrestart = "no"\n'
    )
    write(relay, project, chain + 'run = "true"\n')
    relay("up", cwd=project)
    relay("down", cwd=project)
    write(relay, project, chain + 'run = "false"\n')
    done = relay("up", cwd=project, check=False)
    assert done.returncode == 1
    assert "Run is not started: it waits until Build is done, and that is not started." in done.stderr


def test_a_program_that_is_not_installed_is_reported_in_a_sentence(relay: Fleet, project: Path) -> None:
    """C16."""
    write(relay, project, '[agents.Lead]\nrun = "claud"\n')
    done = relay("up", cwd=project, check=False)
    assert done.returncode == 1
    assert done.stderr == "relay: Lead is not started: command not found: 'claud'; it is not in PATH.\n"


def test_what_depends_on_an_agent_that_waits_for_room_waits_too(relay: Fleet, project: Path) -> None:
    write(
        relay,
        project,
        '[agents.Db]\nrun = "cat"\n[agents.Api]\nrun = "cat"\n'
        '[agents.Lead]\nrun = "cat"\ndepends_on = ["Api"]\n',
        most=1,
    )
    output = relay("up", cwd=project).stdout
    assert "Api waits: max_running agents are running" in output
    assert "Lead starts once Api is ready." in output
    assert states(relay).keys() == {"Db"}


def test_up_restarts_a_fleet_whose_processes_were_killed(relay: Fleet, project: Path) -> None:
    """As after a reboot, `relay ps -a` lists them as gone."""
    write(relay, project, '[agents.A]\nrun = "cat"\n[agents.B]\nrun = "cat"\n')
    relay("up", cwd=project)
    relay("stop", "-t", relay.team, "B")
    row = states(relay)["A"]
    for pid in (row["terminal_pid"], row["session_pid"], row["agent_pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: states(relay) == {})
    rows = states(relay, "-a")
    assert (rows["A"]["state"], rows["A"]["wanted"]) == ("gone", "up")
    assert (rows["B"]["state"], rows["B"]["wanted"]) == ("off", "down")
    relay("up", cwd=project)
    assert states(relay).keys() == {"A"}


def test_a_finished_agent_is_not_started_at_boot(relay: Fleet, project: Path) -> None:
    """`--boot` does not restart a finished agent, but starts those that depend on it."""
    write(
        relay,
        project,
        '[agents.build]\nrun = ["sh", "-c", "echo x >> runs"]\n'
        '[agents.B]\nrun = "cat"\ndepends_on = { build = "done" }\n',
    )
    relay("up", cwd=project)
    wait_until(lambda: states(relay).keys() == {"B"})
    os.kill(states(relay)["B"]["terminal_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay) == {})
    output = relay("up", "--boot", cwd=project).stdout
    assert "build is not started at boot; `relay up build` starts it.\n" in output
    assert states(relay).keys() == {"B"}
    assert (project / "runs").read_text() == "x\n"
    relay("down", "B", cwd=project)
    relay("up", cwd=project)
    assert (project / "runs").read_text() == "x\nx\n"
    assert states(relay).keys() == {"B"}


def test_a_crashed_agent_of_a_fleet_is_restarted(relay: Fleet, project: Path) -> None:
    write(relay, project, '[defaults]\nbackoff = 0.1\n[agents.A]\nrun = "cat"\n')
    relay("up", cwd=project)
    before = states(relay)["A"]
    os.kill(before["agent_pid"], signal.SIGKILL)
    wait_until(lambda: states(relay).get("A", {}).get("restarts") == 1)
    assert record(relay, "A", relay.team)["fleet"] == str(project / "relay.toml")


def test_an_untrusted_fleet_starts_nothing(relay: Fleet, project: Path) -> None:
    (project / "relay.toml").write_text('[agents.A]\nrun = "cat"\n')
    done = relay("up", cwd=project, check=False)
    assert done.returncode == 1
    assert "relay trust" in done.stderr
    assert states(relay) == {}


def test_an_agent_receives_its_task(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = ["sh", "-c", "cat > received"]\ntask = "Fix the tests."\n')
    relay("up", cwd=project)
    wait_until(lambda: "task] Fix the tests. [/relay" in (project / "received").read_text())


def test_a_scheduled_agent_waits_for_its_schedule(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = "cat"\nschedule = { every = "1h" }\n[agents.B]\nrun = "cat"\n')
    output = relay("up", cwd=project).stdout
    assert "A starts on its schedule; `relay up A` starts it now.\n" in output
    assert states(relay).keys() == {"B"}
    assert states(relay, "-a")["A"]["state"] == "queued"
    relay("up", "A", cwd=project)
    assert states(relay).keys() == {"A", "B"}


def test_no_more_than_max_running_agents_are_started(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = "cat"\n[agents.B]\nrun = "cat"\n', most=1)
    assert "B waits: max_running agents are running.\n" in relay("up", cwd=project).stdout
    assert states(relay).keys() == {"A"}
    assert states(relay, "-a")["B"]["state"] == "queued"
    relay("down", "B", cwd=project)
    assert states(relay, "-a")["B"]["wanted"] == "down"


@needs_git
def test_each_agent_has_its_own_worktree(relay: Fleet, project: Path) -> None:
    """Each agent has its own worktree; a failed setup holds the agent; a worktree without work is removed."""
    project.rmdir()
    Repo(project)
    write(
        relay,
        project,
        '[defaults.worktree]\ncleanup = "merged"\n[agents.A]\nrun = "cat"\n[agents.B]\nrun = "cat"\n'
        '[agents.C]\nrun = "cat"\nworktree = { setup = ["echo no such tool; exit 9"] }\n',
    )
    done = relay("up", cwd=project, check=False)
    assert done.returncode == 1
    rows = states(relay)
    assert {name: Path(row["cwd"]).name for name, row in rows.items()} == {"A": "A", "B": "B"}
    assert (Path(rows["A"]["cwd"]) / "file").read_text() == "one\n"
    held = states(relay, "-a")["C"]
    assert held["state"] == "held"
    assert "no such tool" in done.stderr
    (failed,) = json.loads(relay("inbox", "--json", "-t", relay.team).stdout)
    assert (failed["kind"], failed["name"]) == ("failed", "C") and "no such tool" in failed["text"]
    (Path(rows["B"]["cwd"]) / "work").write_text("not committed\n")
    output = relay("down", cwd=project).stdout
    assert "A: no worktree is left; its work is in HEAD.\n" in output
    assert "B: its worktree" in output
    ended = {each["name"]: each for each in json.loads(relay("down", "--json", cwd=project).stdout)}
    assert {each["outcome"] for each in ended.values()} == {"not running"}
    assert ended["A"]["worktree"]["kept"] is None
    assert Path(ended["B"]["worktree"]["path"]).name == "B" and ended["B"]["worktree"]["kept"]
    assert "is kept" in output
    assert not Path(rows["A"]["cwd"]).exists()
    assert (Path(rows["B"]["cwd"]) / "work").exists()


@needs_git
def test_a_down_that_fails_keeps_the_worktree(relay: Fleet, project: Path) -> None:
    project.rmdir()
    Repo(project)
    write(relay, project, '[defaults.worktree]\ncleanup = "merged"\n[agents.A]\nrun = "cat"\n')
    relay("up", cwd=project)
    row = states(relay)["A"]
    os.kill(row["session_pid"], signal.SIGSTOP)
    done = relay("down", cwd=project, check=False)
    os.kill(row["session_pid"], signal.SIGCONT)
    assert done.returncode == 1
    assert "A does not answer" in done.stderr
    assert f"A: its worktree {row['cwd']} is kept: A is running\n" in done.stdout
    assert Path(row["cwd"], "file").exists()
    assert "no worktree is left" in relay("down", cwd=project).stdout
    assert not Path(row["cwd"]).exists()


def start(relay: Fleet, project: Path, *words: str) -> subprocess.Popen[str]:
    """Start a `relay` command, and return it still running."""
    return subprocess.Popen(
        [*relay.command, *words], cwd=project, env=relay.environment, stdout=subprocess.PIPE, text=True
    )


WAITS = "Waiting for another command that is starting agents of {}.\n"


def test_no_agent_starts_while_a_down_stops_others(home: Path) -> None:
    """Otherwise A's session would start B, which is scheduled, while A is still stopping."""
    relay, project = Fleet(home, "web"), home / "project"
    project.mkdir()
    settings(relay, "closing_seconds = 0.1\nstop_seconds = 60\n")
    slow = "trap 'touch stopping; until [ -e go ]; do sleep 0.05; done; exit' TERM; touch ready; cat"
    write(
        relay,
        project,
        f'[agents.B]\nrun = "cat"\nschedule = {{ every = "1h" }}\n[agents.A]\nrun = ["sh", "-c", "{slow}"]\n',
    )
    relay("up", cwd=project)
    wait_until((project / "ready").exists)
    assert record(relay, "B", "web")["wanted"] == "up"
    down = start(relay, project, "down")
    wait_until((project / "stopping").exists)
    assert record(relay, "B", "web")["wanted"] == "down"
    (project / "go").touch()
    output, _ = down.communicate()
    assert (down.returncode, output) == (0, "A has ended.\nB is not running.\n")
    assert (record(relay, "A", "web")["wanted"], record(relay, "A", "web")["by"]) == ("down", "down")


def test_a_down_stops_an_agent_that_another_command_is_starting(relay: Fleet, project: Path) -> None:
    write(relay, project, '[agents.A]\nrun = "cat"\n')
    with starting(Home.from_env(relay.environment).ensure(), relay.team):
        down = start(relay, project, "down")
        assert down.stdout is not None
        assert down.stdout.readline() == WAITS.format(relay.team)
        relay("wrap", "-d", "-n", "A", "-t", relay.team, "cat")
    output, _ = down.communicate()
    assert (down.returncode, output) == (0, "A has ended.\n")
    assert states(relay) == {}


def test_a_due_agent_is_not_started_after_a_down(relay: Fleet, project: Path) -> None:
    """It was due when `up --due` began, but `relay down` came first."""
    write(relay, project, '[agents.A]\nrun = "cat"\n[agents.B]\nrun = "cat"\n', most=1)
    relay("up", cwd=project)
    relay("stop", "-t", relay.team, "A")
    with starting(Home.from_env(relay.environment), relay.team):
        up = start(relay, project, "up", "--due")
        assert up.stdout is not None
        assert up.stdout.readline() == WAITS.format(relay.team)
        Records(Home.from_env(relay.environment)).change(
            relay.team, "B", lambda record: replace(record, wanted="down", by="down")
        )
    output, _ = up.communicate()
    assert (up.returncode, output) == (0, "")
    assert states(relay) == {}
