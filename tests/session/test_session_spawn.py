"""An agent of a fleet that starts and ends others: what it may do, and how their end is reported to it."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forkserver
from cli.test_up import states
from relay.agents.conversation import Conversation
from relay.control.caller import agent_of
from relay.control.lineage import Lineage, ancestors, through
from relay.home import Home
from relay.supervision.records import Records
from session.fake_agent import FakeAgent
from session.test_session_supervised import record
from support import Relay, processes_of, session_patch, wait_until

CHECK_OFTEN = session_patch(
    "from relay.features import spawner\nspawner.Spawner.__init__.__kwdefaults__['look'] = 0.2\n"
)
"""Makes sessions check often on the agents that their agent has started."""


class Fleet:
    """A trusted fleet, whose team is its own: Lead runs; Worker is the template for others."""

    def __init__(self, relay: Relay) -> None:
        relay.environment |= CHECK_OFTEN
        self.relay = relay
        self.team = f"web{next(_numbers)}"
        self.folder = relay.home / self.team
        self.folder.mkdir()
        self.lead = FakeAgent(relay, "Lead", team=self.team)
        self.worker = FakeAgent(relay, "Worker", team=self.team)  # spawned agents run its program

    def write(
        self, *, spawn: bool = True, most: int = 8, more: str = "", worker: str = "", trust: bool = True
    ) -> None:
        def run(fake: FakeAgent) -> str:
            return json.dumps([str(word) for word in fake.command()])

        (self.folder / "relay.toml").write_text(
            f'[fleet]\nteam = "{self.team}"\nstart_interval = 0\nmax_running = {most}\n'
            f"spawn = {str(spawn).lower()}\n"
            f"[defaults]\nbackoff = 0.05\n"
            f"[agents.Lead]\nrun = {run(self.lead)}\ncwd = 'lead'\n"
            f"[agents.Worker]\nrun = {run(self.worker)}\nautostart = false\n"
            f"env = {{ COLOUR = 'blue' }}\n{worker}\n{more}"
        )
        (self.folder / "lead").mkdir(exist_ok=True)
        if trust:
            self.relay("trust", "relay.toml", cwd=self.folder)

    def up(self, **file: Any) -> Fleet:
        self.write(**file)
        self.relay("up", cwd=self.folder)
        wait_until(lambda: (self.lead.folder / "strings").exists())
        return self

    def spawn(self, words: str = "Tester Worker") -> None:
        """Have Lead start an agent, and wait until it runs."""
        (self.worker.folder / "strings").unlink(missing_ok=True)
        self.lead.say(f"@relay:spawn {words}")
        self.lead.receives(f"{words.split()[0]} was started")
        wait_until(lambda: (self.worker.folder / "strings").exists())

    def states(self) -> dict[str, Any]:
        return states(self.relay, "-t", self.team)

    def record(self, name: str) -> dict[str, Any]:
        return record(self.relay, name, self.team)

    def refused(self, words: str, why: str) -> str:
        """Have Lead print a directive, and wait until it is refused; return what Lead has read."""
        self.lead.say(words)
        return self.lead.receives(why)

    def end_notices(self) -> list[str]:
        """Return the notices to Lead about the end of agents that it started."""
        return [text for _, text in self.lead.texts() if "has ended: " in text]


_numbers = itertools.count(1)


@pytest.fixture
def fleet(shared: Relay) -> Iterator[Fleet]:
    """Yield a fleet in a shared home; its agents are stopped afterwards."""
    fleet = Fleet(shared)
    yield fleet
    shared("stop", "--all", "-t", fleet.team, check=False)


def test_an_agent_can_start_another_one_which_may_not_start_others(fleet: Fleet) -> None:
    """What looks like options is part of the task."""
    fleet.up()
    fleet.spawn("Tester Worker --dangerously-skip-permissions -- --by you")
    fleet.worker.receives("task from Lead] --dangerously-skip-permissions -- --by you [/relay")
    row = fleet.states()["Tester"]
    assert (row["team"], row["cwd"], row["parent"]) == (fleet.team, str(fleet.folder / "lead"), "Lead")
    assert Path(f"/proc/{row['agent_pid']}/cwd").resolve() == fleet.folder / "lead"
    environment = Path(f"/proc/{row['agent_pid']}/environ").read_text().split("\0")
    assert {"COLOUR=blue", "RELAY_NAME=Tester", f"RELAY_TEAM={fleet.team}"} <= set(environment)
    command = Path(f"/proc/{row['agent_pid']}/cmdline").read_text().split("\0")[:-1]
    assert command == [str(word) for word in fleet.worker.command()]
    fleet.lead.say("@relay:Tester how far are you?")
    fleet.worker.receives("from Lead] how far are you?")
    assert [e["agent"] for e in fleet.lead.events("spawned")] == ["Tester"]
    fleet.worker.say("@relay:spawn Third Worker")
    fleet.worker.receives("this agent may not start or stop others")
    by = ("--by", "Tester", "-t", fleet.team, "-f", "relay.toml")
    done = fleet.relay("spawn", *by, "Third", "Worker", cwd=fleet.folder, check=False)
    assert "Lead started Tester, and such an agent may not start others." in done.stderr
    assert fleet.states().keys() == {"Lead", "Tester"}


def test_an_agent_may_not_spawn_unless_the_file_allows_it(fleet: Fleet) -> None:
    fleet.up(spawn=False)
    fleet.refused(
        "@relay:spawn Tester Worker", "this agent may not start or stop others. Ask the user to set spawn ="
    )
    fleet.refused("@relay:release Worker", "this agent may not start or stop others")
    assert fleet.states().keys() == {"Lead"}


def test_the_file_is_checked_again_for_each_spawn(fleet: Fleet) -> None:
    """Spawning was allowed when the session started; then the file was changed, and trusted again."""
    fleet.up()
    fleet.write(spawn=False, trust=False)
    fleet.refused("@relay:spawn Tester Worker", "is not trusted, so none of its agents was started")
    fleet.relay("trust", "relay.toml", cwd=fleet.folder)
    fleet.refused("@relay:spawn Tester Worker", "does not allow agents to start others")
    assert fleet.states().keys() == {"Lead"}
    assert [e["text"][:3] for e in fleet.lead.events("spawn_refused")] == [str(fleet.folder)[:3]] * 2


def test_an_invalid_spawn_is_refused(fleet: Fleet) -> None:
    fleet.up()
    fleet.relay("wrap", "-d", "-n", "Bob", "-t", fleet.team, "cat")
    for words, why in (
        (
            "Tester sh -c reboot",
            "the fleet file has no agent that runs sh. Write the new agent's program, without",
        ),
        ("Tester --by Worker", "the fleet file has no agent that runs --by"),
        ("--by=Lead Worker", "'--by=Lead' is not a valid name"),
        ("-fother Worker", "'-fother' is not a valid name"),
        ("Worker Worker", "Worker is an agent in the fleet file, which the user starts"),
        ("Spawn Worker", "the name 'Spawn' is reserved"),
        ("Bob Worker", "the name Bob belongs to another agent"),
        ("Tester", "write the new agent's name, what it runs, and its task: NAME COMMAND TASK"),
    ):
        fleet.refused(f"@relay:spawn {words}", why)
    assert fleet.states().keys() == {"Lead", "Bob"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_task_is_in_no_command_line(fleet: Fleet) -> None:
    """Every user of the machine can read those, and a spawn may wait for minutes."""
    fleet.up()
    fleet.spawn("First Worker")
    file = fleet.folder / "relay.toml"
    file.write_text(file.read_text().replace("start_interval = 0", "start_interval = 5"))
    fleet.relay("trust", "relay.toml", cwd=fleet.folder)
    fleet.lead.say("@relay:spawn Tester Worker zebra")
    wait_until(lambda: any(" spawn --by " in line for line in processes_of(fleet.relay.home).values()))
    assert not [line for line in processes_of(fleet.relay.home).values() if "zebra" in line]
    fleet.lead.receives("Tester was started")


def test_a_spawn_beyond_max_running_is_refused(fleet: Fleet) -> None:
    """Spawned agents count, for agents and for the user."""
    fleet.up(most=2)
    fleet.spawn()
    fleet.refused(
        "@relay:spawn Second Worker", "2 agents of the fleet are running, and max_running is 2. Release one"
    )
    output = fleet.relay("up", "Worker", cwd=fleet.folder).stdout
    assert output == "Worker waits: max_running agents are running.\n"
    fleet.lead.say("@relay:release Tester")
    fleet.lead.receives("Tester has ended.")
    wait_until(lambda: fleet.states().keys() == {"Lead"})


def test_the_end_of_a_spawned_agent_is_reported_to_its_parent_once(fleet: Fleet) -> None:
    """Not while the agent restarts, and not again after the parent's session was replaced."""
    fleet.up(worker="max_restarts = 1")
    fleet.spawn()
    before = fleet.states()["Tester"]
    fleet.worker.exit(3)
    wait_until(lambda: fleet.states()["Tester"]["restarts"] == before["restarts"] + 1)
    wait_until(lambda: (fleet.worker.folder / "strings").exists())
    assert fleet.end_notices() == []
    fleet.worker.exit(3)
    wait_until(fleet.end_notices)
    wait_until(lambda: fleet.record("Tester")["reported"])
    fleet.relay(
        "send", "--wait", "60", "-t", fleet.team, "Lead", "hello"
    )  # otherwise the notice may still be in hand
    fleet.relay("reload", "-t", fleet.team, "Lead")
    fleet.spawn("Next Worker")
    fleet.relay("send", "--wait", "60", "-t", fleet.team, "Lead", "anything else?")
    (notice,) = fleet.end_notices()
    assert notice.startswith("Tester, which you started, has ended: it exited with 3; restarted once")


def test_the_parents_next_session_reports_the_end(fleet: Fleet) -> None:
    """The agent ends while its parent's session hangs."""
    fleet.up()
    fleet.spawn()
    row = fleet.states()["Lead"]
    os.kill(row["session_pid"], signal.SIGSTOP)
    fleet.worker.exit(0)
    wait_until(lambda: fleet.record("Tester")["phase"] == "done")
    os.kill(row["session_pid"], signal.SIGKILL)
    wait_until(fleet.end_notices)
    assert fleet.end_notices() == ["Tester, which you started, has ended: it exited with 0."]


def test_the_end_is_reported_when_the_parent_runs_again(fleet: Fleet) -> None:
    fleet.up()
    fleet.spawn()
    fleet.relay("stop", "-t", fleet.team, "Lead")
    fleet.worker.exit(0)
    wait_until(lambda: fleet.states() == {})
    (fleet.lead.folder / "strings").unlink()
    fleet.relay("up", "Lead", cwd=fleet.folder)
    wait_until(fleet.end_notices)


def test_the_death_of_all_its_processes_is_reported(fleet: Fleet) -> None:
    fleet.up()
    fleet.spawn()
    row = fleet.states()["Tester"]
    for pid in (row["terminal_pid"], row["session_pid"], row["agent_pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(fleet.end_notices)
    (notice,) = fleet.end_notices()
    assert notice == (
        "Tester, which you started, has ended: its processes were killed, for example by a crash or a "
        "reboot. You can start it again."
    )
    fleet.spawn()


def test_a_failed_spawn_is_reported_once(fleet: Fleet) -> None:
    broken = '[agents.Broken]\nrun = ["sh", "-c", "exit 3"]\nrestart = "no"\nautostart = false\n'
    missing = '[agents.Missing]\nrun = "no-such-program"\nautostart = false\n'
    fleet.up(more=broken + missing)
    fleet.refused("@relay:spawn Tester Broken", "Tester")
    fleet.refused("@relay:spawn Other Missing", "no-such-program")
    wait_until(lambda: fleet.record("Tester")["reported"])
    fleet.spawn("Third Worker")
    assert fleet.end_notices() == []


def test_only_the_parent_can_release_a_spawned_agent(fleet: Fleet) -> None:
    """A release is like a stop: the agent is not restarted."""
    fleet.up(worker='restart = "always"', more='[agents.Ann]\nrun = "cat"\n')
    fleet.spawn()
    fleet.refused("@relay:release Ann", "Ann is not an agent you started. Those are Tester.")
    fleet.refused("@relay:release Lead", "Lead is not an agent you started")
    fleet.lead.say("@relay:release tester")
    fleet.lead.receives("Tester has ended.")
    assert fleet.states().keys() == {"Lead", "Ann"}
    found = fleet.record("Tester")
    assert (found["wanted"], found["by"], found["phase"]) == ("down", "release", "off")
    fleet.spawn()  # Lead released it, and may start it again
    assert fleet.end_notices() == []


def test_a_spawned_agent_stopped_by_the_user_stays_stopped(fleet: Fleet) -> None:
    fleet.up()
    fleet.spawn()
    fleet.relay("stop", "-t", fleet.team, "Tester")
    wait_until(fleet.end_notices)
    assert fleet.end_notices() == ["Tester, which you started, has ended: the user has stopped it."]
    fleet.refused(
        "@relay:spawn Tester Worker", "the user stopped Tester, and only the user may start it again"
    )
    fleet.lead.say("@relay:release Tester")  # which does not change that
    fleet.lead.receives("Tester had ended before.")
    (fleet.lead.folder / "received").write_text("")
    fleet.refused("@relay:spawn Tester Worker", "the user stopped Tester")


def test_spawned_agents_belong_to_the_fleet(fleet: Fleet) -> None:
    """They end with the fleet, but do not start with it."""
    fleet.up()
    fleet.spawn()
    assert "Tester has ended." in fleet.relay("down", cwd=fleet.folder).stdout
    assert fleet.states() == {}
    (fleet.lead.folder / "strings").unlink()
    fleet.relay("up", cwd=fleet.folder)
    assert fleet.states().keys() == {"Lead"}
    wait_until(lambda: (fleet.lead.folder / "strings").exists())
    fleet.spawn()
    output = fleet.relay("down", "Tester", cwd=fleet.folder).stdout
    assert output.splitlines()[-1] == "Tester has ended."  # it may first wait for the command that started it
    assert fleet.states().keys() == {"Lead"}


def test_a_resumed_spawned_agent_keeps_its_settings(fleet: Fleet) -> None:
    """It has the environment of its template."""
    program = fleet.folder / "program"
    program.write_text("#!/bin/sh\necho $COLOUR $* >> colours\nexec cat\n")
    program.chmod(0o700)
    fleet.up(more=f"[agents.Red]\nrun = '{program}'\nautostart = false\nenv = {{ COLOUR = 'red' }}\n")
    fleet.lead.say("@relay:spawn Tester program")
    fleet.lead.receives("Tester was started with the settings of Red.")
    fleet.relay("stop", "-t", fleet.team, "Tester")
    folder = fleet.folder / "lead"
    conversation = Conversation("claude", "abc", folder).to_json()
    records = Records(Home.from_env(fleet.relay.environment))
    records.change(fleet.team, "Tester", lambda record: replace(record, conversation=conversation))
    fleet.relay("resume", "-t", fleet.team, "Tester")
    wait_until(lambda: (folder / "colours").read_text() == "red\nred --resume abc\n")
    assert fleet.states()["Tester"]["parent"] == "Lead"


class Shell:
    """An agent that is a script and runs relay command lines; the exit code and output of each."""

    def __init__(self, fleet: Fleet, *lines: str, spawn: bool = True) -> None:
        folder, script = fleet.folder, fleet.folder / "lead.sh"
        command = f"{shlex.quote(sys.executable)} -m relay"
        runs = "".join(
            f"({line}) > {folder}/out{n} 2> {folder}/err{n}\necho $? > {folder}/code{n}\n"
            for n, line in enumerate(lines)
        )
        script.write_text(f'relay() {{ {command} "$@"; }}\n{runs}touch {folder}/over\nexec cat\n')
        fleet.write(spawn=spawn, more=f'[agents.Shell]\nrun = ["sh", "{script}"]\n')
        fleet.relay("up", "Shell", cwd=folder)

        def results() -> list[tuple[int, str]]:
            files = [[folder / f"{what}{n}" for what in ("code", "out", "err")] for n in range(len(lines))]
            return [(int(code.read_text()), out.read_text() + err.read_text()) for code, out, err in files]

        wait_until((folder / "over").exists)
        self.results = results()
        self.code, self.output = self.results[0]


def test_agents_can_spawn_and_release_by_command(fleet: Fleet) -> None:
    done = Shell(fleet, "relay spawn Tester Worker Write -v tests && relay ps && relay release Tester")
    assert done.code == 0, done.output
    output = done.output
    assert "Tester was started with the settings of Worker. You will be told when it ends.\n" in output
    assert output.endswith("Tester has ended.\n")
    assert "Write -v tests" in fleet.record("Tester")["options"]["task"]
    assert fleet.states().keys() == {"Shell"}


@pytest.mark.parametrize("spawn", [True, False])
def test_an_unauthorised_spawn_or_release_command_is_refused(
    fleet: Fleet, subtests: pytest.Subtests, spawn: bool
) -> None:
    held = "held messages wait for the user"
    refused = {
        "relay spawn Tester nothing": "the fleet file has no agent that runs nothing",
        f"relay spawn --by Shell -t {fleet.team} -f relay.toml Tester Worker": "an agent starts others with",
        f"relay release --by Shell -t {fleet.team} Worker": held,
        "relay release Worker": "Worker is not an agent you started. You have started no agents.",
    }
    if not spawn:
        refused = {
            "relay spawn Tester Worker": "this agent may not start or stop others. Ask the user",
            "relay release Worker": f"{held}. An agent cannot release them.",
        }
    shell = Shell(fleet, *refused, spawn=spawn)
    for (line, why), (code, output) in zip(refused.items(), shell.results, strict=True):
        with subtests.test(line):
            assert code == 1
            assert why in output
    assert fleet.states().keys() == {"Shell"}


def test_spawn_by_the_user_hints_at_relay_wrap(relay: Relay) -> None:
    done = relay("spawn", "Tester", "cat", check=False)
    assert done.returncode == 2
    assert "use `relay wrap -d -n NAME COMMAND`" in done.stderr


def test_spawn_uses_the_agents_own_session_whatever_its_environment_says(fleet: Fleet) -> None:
    fleet.up()
    others = f"RELAY_SOCKET=$RELAY_HOME/run/sessions/{fleet.team}/lead.sock RELAY_NAME=Lead"
    done = Shell(fleet, f"{others} relay spawn Tester Worker")
    assert done.code == 0, done.output
    assert fleet.record("Tester")["parent"] == "Shell"


def test_a_spawned_agent_is_identified_after_its_parents_session_was_replaced(fleet: Fleet) -> None:
    """The parent's shim adopts it, but neither it nor its session counts as the parent's."""
    with forkserver.real_exec():  # a stub would be its parent
        fleet.up()
    fleet.spawn()
    fleet.relay("reload", "-t", fleet.team, "Lead")
    home, found = Home.from_env(fleet.relay.environment), fleet.states()
    lead, tester = found["Lead"], found["Tester"]
    wait_until(lambda: ancestors(tester["terminal_pid"])[1] == lead["terminal_pid"])
    own = Lineage(lead["agent_pid"], lead["terminal_pid"], lead["session_pid"])
    caller = agent_of(home, ancestors(tester["agent_pid"]))
    assert caller is not None and caller.name == "Tester"
    assert through(home, own, ancestors(tester["agent_pid"])) == 0
    assert agent_of(home, ancestors(tester["session_pid"])) is None
