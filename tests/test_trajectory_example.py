"""examples/trajectory records the work of wrapped agents with the real `trail` from npm (R64)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real_agents.install import CACHE, Package
from relay.hooks.registry import Registry, registering
from session.fake_agent import FakeAgent, messages
from support import PATIENCE, Relay, wait_until

EXAMPLE = Path(__file__).parent.parent / "examples" / "trajectory"
TRAIL = Package("trail", "agent-trajectories", "0.6.1", "node_modules/.bin/trail")

sys.path.append(str(EXAMPLE))  # as relay does when it loads the config
import trajectory as driver  # noqa: E402

if TYPE_CHECKING:
    from trajectory import Trajectory
else:
    Trajectory = driver.Trajectory

pytestmark = pytest.mark.timeout(400)
"""Each call of trail starts Node.js, which takes seconds on a busy machine."""

HOSTILE = {
    "characters": 'it\'s "quoted" `date`; $(touch pwned); touch pwned & | > pwned; 東京 🧑‍🚀 %s %d {} \\n; '
    "two\nlines\r\nand \ttabs; nul\0, escape \x1b]0;title\x07, lone \ud800",
    "option": "--help",
    "end of options": "--",
    "long": "x" * 5_000,
}


@pytest.fixture(scope="session")
def trail() -> Path:
    """Return the folder of the real `trail`, installed once in .cache; skip the test if that fails."""
    TRAIL.folder.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "trail.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # against other pytest workers
        if not TRAIL.installed:
            if blocked := TRAIL.blocked():
                pytest.skip(f"examples/trajectory with the real trail: {blocked}")
            try:
                TRAIL.install()
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"examples/trajectory with the real trail: {error}; see {TRAIL.log}")
    return TRAIL.command.parent


@pytest.fixture
def trail_env(trail: Path) -> dict[str, str]:
    """Return the environment of an agent with the real trail and enough time for it on a busy machine."""
    return {"PATH": f"{trail}:{os.environ['PATH']}", "TRAIL_SECONDS": str(PATIENCE)}


@pytest.fixture
def folder(relay: Relay) -> Path:
    """Return a trusted project with the example's files."""
    folder = relay.home / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    relay("trust", cwd=folder)
    return folder


def fake_trail(folder: Path, code: str) -> dict[str, str]:
    """Return the environment of an agent whose `trail` is a shell script containing `code`."""
    folder.mkdir(exist_ok=True)
    (folder / "trail").write_text(f"#!/bin/sh\n{code}\n")
    (folder / "trail").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def trajectories(data: Path) -> list[dict[str, Any]]:
    """Return the trajectories that trail has written for one agent."""
    texts = [path.read_text() for path in data.rglob("trajectory.json")]
    return [json.loads(text) for text in texts if text]  # trail empties the file before it writes


def events(data: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind in an agent's only trajectory, oldest first."""
    try:
        (one,) = trajectories(data)
    except ValueError:
        return []  # none yet, or half written
    return [event for chapter in one["chapters"] for event in chapter["events"] if event["type"] == kind]


def phases(data: Path) -> list[str]:
    """Return every recorded phase, including those only passed through, oldest first."""
    found = []
    for event in events(data, "decision"):
        passed = re.search(r"^Passed through: (.*)$", event["raw"]["reasoning"], re.MULTILINE)
        found += passed[1].split(", ") if passed else []
        found.append(event["raw"]["chosen"].removeprefix("phase: "))
    return found


def reflections(data: Path) -> str:
    return "\n".join(event["content"] for event in events(data, "reflection"))


def data_of(folder: Path, name: str) -> Path:
    return folder / ".agentworkforce" / "trajectories" / "default" / name


@pytest.mark.slow
def test_a_session_is_recorded_from_its_task_to_its_end(
    relay: Relay, folder: Path, trail_env: dict[str, str]
) -> None:
    """R64: task, phases, a message and the closing prompt."""
    ada, data = FakeAgent(relay, "Ada"), data_of(folder, "Ada")
    ada.wrap(options=("--task", "Fix the 'login' form"), cwd=folder, env=trail_env)
    ada.receives("Active trajectory: Fix the 'login' form")
    ada.receives("Phase: none yet")
    ada.say("Now designing the form.")
    wait_until(lambda: phases(data) == ["design"], message=ada.log)
    ada.say("tests/testing.py: testing 3 of 3 ok")
    ada.say("Now designing it with less.")
    ada.say("I'm testing it.")
    wait_until(lambda: len(phases(data)) > 1, message=ada.log)
    relay("send", "Ada", "mind the umlauts")
    wait_until(lambda: "mind the umlauts" in reflections(data), message=ada.log)
    relay("stop", "Ada", timeout=2 * PATIENCE)
    assert phases(data) == ["design", "test"]
    assert events(data, "decision")[1]["raw"]["reasoning"] == "The agent said: I'm testing it."
    assert reflections(data) == "Message from the user: mind the umlauts"
    (line,) = re.findall(r"trail --data-dir .* --confidence 0\.9", ada.received)
    subprocess.run(["sh", "-c", line], env={**os.environ, **trail_env}, cwd=folder, check=True)
    (completed,) = trajectories(data)
    assert (completed["status"], completed["agents"][0]["name"]) == ("completed", "Ada")
    assert completed["retrospective"]["confidence"] == 0.9


@pytest.mark.slow
def test_recording_two_agents_at_once_loses_nothing(
    relay: Relay, folder: Path, trail_env: dict[str, str]
) -> None:
    """R64: they share a folder, and write phases and messages at the same time."""
    words, short = ["designing", "implementing", "testing"], ["design", "implement", "test"]
    both = [FakeAgent(relay, name) for name in ("Ada", "Bob")]
    for fake in both:
        fake.wrap(options=("--task", f"{fake.name}'s task"), cwd=folder, env=trail_env)
        fake.receives("Active trajectory")
    for number, phase in enumerate(words):
        for fake in both:
            fake.say(f"Now {phase}.")
            relay("send", fake.name, f"for {fake.name}, number {number}.")
    for fake in both:
        data = data_of(folder, fake.name)
        wait_until(lambda data=data: phases(data) == short, message=fake.log)
        wait_until(lambda data=data: reflections(data).count("number") == len(words), message=fake.log)
        assert reflections(data).splitlines() == [
            f"Message from the user: for {fake.name}, number {number}." for number in range(len(words))
        ]
        assert trajectories(data)[0]["task"]["title"] == f"{fake.name}'s task"


def test_without_trail_the_user_is_notified_once_and_the_session_continues(
    relay: Relay, folder: Path, tmp_path: Path
) -> None:
    """R64"""
    path = tmp_path / "bin"
    path.mkdir()
    for program in ("sh", "env"):
        (path / program).symlink_to(str(shutil.which(program)))
    ada = FakeAgent(relay, "Ada").wrap(options=("--task", "x"), cwd=folder, env={"PATH": str(path)})
    ada.notice("npm install -g agent-trajectories")
    ada.say("Now testing.")
    relay("send", "Ada", "hello")
    ada.receives("hello")
    wait_until(lambda: messages(relay, "--to", "Ada")[0]["state"] == "injected")
    relay("stop", "Ada", timeout=2 * PATIENCE)
    assert sum("npm install -g" in json.dumps(event) for event in ada.events()) == 1


def test_a_trail_that_hangs_is_killed_and_the_session_continues(
    relay: Relay, folder: Path, tmp_path: Path
) -> None:
    """R64: with its child processes; the fixture finds any that are left."""
    env = {**fake_trail(tmp_path / "bin", "sleep 1000 & wait"), "TRAIL_SECONDS": "0.2"}
    ada = FakeAgent(relay, "Ada").wrap(options=("--task", "x"), cwd=folder, env=env)
    ada.notice("trail export did not end within 0.2 s.")
    relay("send", "Ada", "hello")
    ada.receives("hello")
    relay("stop", "Ada", timeout=2 * PATIENCE)
    assert "[SESSION ENDING]" in ada.received
    assert sum("did not end within" in json.dumps(event) for event in ada.events()) == 1


Make = Callable[..., Trajectory]


@pytest.fixture
def make(trail_env: dict[str, str], tmp_path: Path) -> Make:
    """Return a factory for drivers of the real trail, one for each session of an agent."""

    def make(env: dict[str, str] = trail_env) -> Trajectory:
        return Trajectory("Ada", tmp_path, {**os.environ, **env}, tmp_path / "data", PATIENCE)

    return make


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_data(make: Make, tmp_path: Path, text: str) -> None:
    """R64: not options, commands or terminal controls."""
    ada = make()
    ada.begin(text)
    ada.phase("test", text)
    ada.message("Bob", text)
    ada.close()
    assert ada.problem() is None
    shown = re.sub("[\0\r\x1b\x07\ud800]", "\N{REPLACEMENT CHARACTER}", text)
    (found,) = trajectories(tmp_path / "data")
    assert found["task"]["title"] == (shown if len(shown) <= 500 else shown[:499] + "…")
    (decision,) = events(tmp_path / "data", "decision")
    assert decision["raw"]["reasoning"].startswith(f"The agent said: {shown[:1000]}")
    assert f"Message from Bob: {shown[:1000]}" in reflections(tmp_path / "data")
    assert ("Task: " + shown in reflections(tmp_path / "data")) == (len(shown) > 500)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


def test_the_next_session_continues_an_active_trajectory(make: Make, tmp_path: Path) -> None:
    first = make()
    assert first.begin("first") == "Active trajectory: first\nPhase: none yet"
    first.phase("design", "Phase: design")
    first.close()
    second = make()
    assert second.begin("second") == "Active trajectory: first\nPhase: design"
    second.phase("design", "Now designing")
    second.close()
    assert make().begin("first") == "Active trajectory: first\nPhase: design"
    assert phases(tmp_path / "data") == ["design"]
    assert reflections(tmp_path / "data") == "New task: second"
    assert second.problem() is None


def test_a_phase_declared_before_the_start_is_recorded(make: Make, tmp_path: Path) -> None:
    ada = make()
    ada.phase("plan", "I'm planning it.")
    wait_until(lambda: not ada._writing)  # it has found no trajectory
    ada.begin("task")
    ada.close()
    assert phases(tmp_path / "data") == ["plan"]


def test_a_reloaded_session_knows_the_phase(make: Make, tmp_path: Path) -> None:
    """`relay reload` does not fire session_start again."""
    first = make()
    first.begin("first")
    first.phase("design", "Phase: design")
    first.close()
    second = make()
    second.phase("design", "Phase: design")
    second.message("Bob", "hello")
    second.close()
    assert phases(tmp_path / "data") == ["design"]
    assert reflections(tmp_path / "data") == "Message from Bob: hello"


def test_without_a_trajectory_nothing_is_recorded_or_reported(make: Make, tmp_path: Path) -> None:
    ada = make()
    assert ada.begin(None) == ""
    ada.message("Bob", "hello")
    ada.close()
    assert trajectories(tmp_path / "data") == []
    assert ada.problem() is None


def test_events_after_a_completed_trajectory_are_omitted(make: Make, tmp_path: Path, trail: Path) -> None:
    ada = make()
    ada.begin("task")
    complete = ["complete", "--summary=done", "--confidence=0.9"]
    subprocess.run([trail / "trail", "--data-dir", tmp_path / "data", *complete], check=True)
    ada.message("Bob", "hello")
    ada.close()
    assert reflections(tmp_path / "data") == ""
    assert ada.problem() is None


def test_a_failure_is_reported_on_one_line(make: Make, tmp_path: Path) -> None:
    """By the line of Node's stack trace that names the error."""
    (tmp_path / "data").write_text("a file")
    ada = make()
    assert ada.begin("task") == ""
    ada.message("Bob", "hello")
    ada.close()
    assert ada.problem() == f"trail export: File exists: {tmp_path / 'data'}"
    assert ada.problem() is None


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Yield a FIFO at which the fake trail of `test_a_storm_...` waits."""
    os.mkfifo(tmp_path / "gate")
    yield tmp_path / "gate"


def test_a_flood_of_output_takes_a_few_calls(tmp_path: Path, gate: Path) -> None:
    """One call records everything that arrived during the last one, in order."""
    calls = tmp_path / "calls"
    code = f"""
printf '%s\\0' "$@" END >> {calls}
case $1 in
    export) echo '{{"task": {{"title": "t"}}, "chapters": []}}';;
    decision) [ -e passed ] || {{ echo in > reached; cat {gate}; touch passed; }};;
esac"""
    ada = Trajectory(
        "Ada", tmp_path, {**os.environ, **fake_trail(tmp_path / "bin", code)}, tmp_path / "data", PATIENCE
    )
    ada.begin("t")
    ada.phase("plan", "Phase: plan")
    wait_until((tmp_path / "reached").exists)
    for number in range(300):
        ada.phase(("design", "test")[number % 2], "...")
        ada.message("Bob", f"number {number}")
    gate.write_text("")
    ada.close()
    found = [call.strip("\0").split("\0") for call in calls.read_text().split("END\0")[:-1]]
    assert [call[0] for call in found] == ["export", "decision", "decision", "reflect"]
    assert found[2][-1] == "phase: test"
    assert found[3][-1].splitlines() == [f"Message from Bob: number {number}" for number in range(300)]
    assert ada.problem() is None


def test_processes_wait_for_each_other(tmp_path: Path) -> None:
    """A killed session may have left a call behind."""
    data = tmp_path / "data"
    data.mkdir()
    env = {**os.environ, **fake_trail(tmp_path / "bin", "exit 1")}
    ada = Trajectory("Ada", tmp_path, env, data, 0.2)
    with open(data / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ada.begin("task")
    assert ada.problem() == "trail export did not end within 0.2 s."
    ada.begin("task")
    assert ada.problem() == "trail export: exited with 1"


def test_calls_from_many_threads_are_serialized(tmp_path: Path) -> None:
    code = f"""
mkdir {tmp_path}/busy || touch {tmp_path}/overlap
[ "$1" = export ] && echo '{{"task": {{"title": "t"}}, "chapters": []}}'
rmdir {tmp_path}/busy"""
    env = {**os.environ, **fake_trail(tmp_path / "bin", code)}
    agents = [Trajectory("Ada", tmp_path, env, tmp_path / "data", PATIENCE) for _ in range(2)]
    threads = [
        threading.Thread(target=lambda ada=ada, n=n: (ada.begin("t"), ada.message("Bob", str(n))))
        for ada in agents
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ada in agents:
        ada.close()
        assert ada.problem() is None
    assert not (tmp_path / "overlap").exists()


@given(st.text(st.characters(codec=None), max_size=2_000).flatmap(lambda text: st.just(text * 20)))
def test_any_text_can_be_an_argument(text: str) -> None:
    printable = driver._printable(text)
    for shortened in (driver._cut(printable, driver.MAX_ARGUMENT), driver._title(printable)):
        assert "\0" not in shortened
        assert len(os.fsencode(shortened)) < 131_072
    assert len(driver._title(printable).encode("utf-16-le")) <= 2 * driver.MAX_TITLE
    assert driver._title(printable[:500]) == printable[:500] or not printable[:500].isascii()


@pytest.fixture(scope="module")
def declared_phases() -> Callable[[str], list[str]]:
    """Return a function that finds the phases declared in a text."""
    with registering(Registry()):
        config = runpy.run_path(str(EXAMPLE / "relay.config.py"))
    return lambda text: [phase for phase, _ in config["declarations_in"](text)]


DECLARATIONS = [
    ("Now testing the parser.", ["test"]),
    ("I'm planning the migration", ["plan"]),
    ("I’m now designing it", ["design"]),
    ("OK, I am currently observing the logs", ["observe"]),
    ("Let me start implementing the parser.", ["implement"]),
    ("Next, I'll move on to testing.", ["test"]),
    ("Moving on to designing", ["design"]),
    ("Beginning implementing now", ["implement"]),
    ("Testing whether it holds", ["test"]),
    ("Phase: observe", ["observe"]),
    ("**Phase:** testing", ["test"]),
    ("The plan stands. Implementing it now.\nThen I'm testing.", ["implement", "test"]),
]


def test_a_phase_is_declared(declared_phases: Callable[[str], list[str]], subtests: pytest.Subtests) -> None:
    """R64"""
    for text, phases in DECLARATIONS:
        with subtests.test(text):
            assert declared_phases(text) == phases


NO_DECLARATIONS = [
    "tests/testing.py: 3 passed",
    "collecting ... testing 3 of 3",
    "Testing is hard.",
    "Now testing is done.",
    "Testing: 12 passed",
    "- Testing the parser",
    "1. Implementing the parser",
    "## Testing the parser",
    "> I'm testing it",
    '"I\'m testing it", said Bob.',
    "I'm done testing.",
    "I'm not testing this.",
    "We should start testing",
    "Bob is testing it",
    "[from Bob] I'm testing it",
    "now testing-library is installed",
    "```\nNow testing the parser.\n```",
    "Phase: none yet",
    "HOW: Say when the phase changes, in a line such as Phase: implement",
]


def test_no_phase_is_declared(declared_phases: Callable[[str], list[str]], subtests: pytest.Subtests) -> None:
    """R64"""
    for text in NO_DECLARATIONS:
        with subtests.test(text):
            assert declared_phases(text) == []
