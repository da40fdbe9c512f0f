"""The commands of rules run as real processes.

The cost of a flood was measured on two cores, next to a thread that wakes every millisecond, like the one
that forwards a terminal. 100 MB took 0.5 s and 25 ms of this process's time; the thread woke 0.4 ms late in
one of 100 cases (0.1 ms without a flood) and 0.7 ms at most. Next to `yes` it was 0.2 ms, all the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from relay.rules import command
from relay.rules.command import END, KEEP, CommandResult
from support import eventually

HANGING = Path(__file__).with_name("hanging.py")
LONG = 50.0
"""A timeout in seconds that no test here reaches."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds a tree of processes by /proc")


def run(
    line: str | list[str], payload: bytes = b"{}", timeout: float = LONG, cwd: Path = Path("/")
) -> CommandResult:
    return asyncio.run(command.run(line, payload, cwd=cwd, env=dict(os.environ), timeout=timeout))


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program, *arguments]


def alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[0] not in {b"Z", b"X"}
    except FileNotFoundError:
        return False


# The input of a command.


def test_a_command_reads_the_payload_and_answers() -> None:
    """R15."""
    out = run("cat; echo oops >&2; exit 3", b'{"a": 1}\n')
    assert (out.exit_code, out.stdout, out.stderr) == (3, b'{"a": 1}\n', b"oops\n")
    assert not out.problem


def test_a_command_with_arguments_runs_without_a_shell() -> None:
    """R15: the exec form."""
    assert run(["printf", "%s", "$HOME; exit 2"]).stdout == b"$HOME; exit 2"


def test_a_payload_of_10_megabytes_arrives_whole() -> None:
    """R15: all of it arrives."""
    payload = json.dumps({"content": "x" * 10_000_000}).encode()
    program = "import sys, zlib; d = sys.stdin.buffer.read(); print(len(d), zlib.crc32(d))"
    assert run(python(program), payload).stdout.split() == [
        str(len(payload)).encode(),
        str(zlib.crc32(payload)).encode(),
    ]


@pytest.mark.parametrize("line", ["exit 0", "exec <&-; echo read nothing; exit 0", "head -c 5 >/dev/null"])
def test_a_command_may_ignore_its_payload(line: str, caplog: pytest.LogCaptureFixture) -> None:
    """R15: it may also close its standard input."""
    out = run(line, b"x" * 10_000_000)
    assert (out.exit_code, out.problem) == (0, "")
    assert not caplog.records


def test_a_command_has_the_agents_directory_and_environment(tmp_path: Path) -> None:
    """R15: the same directory and environment as the agent."""
    env = {"PATH": os.environ["PATH"], "RELAY_NAME": "alice"}
    out = asyncio.run(command.run("pwd; echo $RELAY_NAME", b"", cwd=tmp_path, env=env, timeout=LONG))
    assert out.stdout.decode().split() == [str(tmp_path.resolve()), "alice"]


def test_a_command_has_its_own_session_and_no_terminal() -> None:
    """R15: a command can neither draw on the agent's screen nor read its keys."""
    program = (
        "import os\n"
        "print(os.getsid(0) == os.getpgrp() == os.getpid())\n"
        "try: os.open('/dev/tty', os.O_RDWR)\n"
        "except OSError: print('no terminal')"
    )
    assert run(python(program)).stdout.decode().splitlines() == ["True", "no terminal"]


def test_a_command_inherits_only_its_standard_streams() -> None:
    """R15: a command gets none of relay's own descriptors, which it could hold open."""
    if sys.platform != "linux":
        pytest.skip("lists descriptors by /proc")
    out = run(python("import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"))
    assert json.loads(out.stdout)[:4] in ([0, 1, 2, 3], [0, 1, 2])


def test_a_command_does_not_ignore_the_signals_that_relay_ignores() -> None:
    """R15: tests that a rule runs may need them."""
    program = (
        "import asyncio, os, signal\n"
        "from pathlib import Path\n"
        "from relay.rules import command\n"
        "numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)\n"
        "for number in numbers: signal.signal(number, signal.SIG_IGN)\n"
        "run = command.run('grep SigIgn /proc/self/status', b'', cwd=Path('/'), env=os.environ, timeout=9)\n"
        "print(asyncio.run(run).stdout.decode())\n"
        "assert all(signal.getsignal(number) is signal.SIG_IGN for number in numbers)"
    )
    if sys.platform != "linux":
        pytest.skip("reads the dispositions of signals in /proc")
    out = run([sys.executable, "-c", program], cwd=Path.cwd())
    assert out.exit_code == 0, out.stderr.decode()
    ignored = int(out.stdout.split()[1], 16)  # the test's parent process may have made it ignore others
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU):
        assert not ignored & 1 << (number - 1), signal.Signals(number)


# The output of a command.


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_output_beyond_the_limit_is_discarded(stream: str) -> None:
    """R15: the start is kept, the rest is discarded, and the exit code counts."""
    out = run(f"head -c 100000000 /dev/zero | tr '\\0' x{stream}; exit 2")
    kept, other = (out.stderr, out.stdout) if stream else (out.stdout, out.stderr)
    assert (out.exit_code, out.problem) == (2, "")
    assert kept == b"x" * KEEP
    assert other == b""
    assert out.cut == (not stream)


@pytest.mark.parametrize("lines", [10, 2_000, 200_000, 2_000_000])
def test_the_end_of_the_output_is_kept(lines: int) -> None:
    out = run(f"seq {lines}; echo the last line")
    whole = b"".join(b"%d\n" % number for number in range(1, lines + 1)) + b"the last line\n"
    assert out.end == whole[-END:]
    assert (out.stdout, out.cut) == (whole[:KEEP], len(whole) > KEEP)


def test_output_up_to_the_limit_is_whole() -> None:
    """R15."""
    out = run(f"head -c {KEEP} /dev/zero")
    assert (len(out.stdout), out.cut) == (KEEP, False)
    out = run(f"head -c {KEEP + 1} /dev/zero")
    assert (len(out.stdout), out.cut) == (KEEP, True)


@pytest.mark.parametrize("line", ["yes", "yes >&2", "cat /dev/zero & cat /dev/zero >&2"])
def test_endless_output_ends_at_the_timeout(line: str) -> None:
    """R15."""
    out = run(f"{line}; wait", timeout=0.5)
    assert out.exit_code is None
    assert "0.5 s" in out.problem
    assert max(len(out.stdout), len(out.stderr)) == KEEP


# The end of a command.


def test_a_signal_becomes_the_exit_code_of_a_shell() -> None:
    """R15."""
    assert run("kill -KILL $$").exit_code == 128 + signal.SIGKILL


def test_a_child_that_holds_the_output_open_delays_nothing(tmp_path: Path) -> None:
    """R15: the output counts once the command has ended; its child keeps running."""
    line = f"(sleep 60 & echo $! > {tmp_path}/pid); echo done; exit 2"

    async def body() -> None:
        out = await command.run(line, b"{}", cwd=tmp_path, env=dict(os.environ), timeout=LONG)
        assert (out.exit_code, out.stdout, out.problem) == (2, b"done\n", "")

    asyncio.run(body())
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)


async def _check_tree(
    folder: Path, end: Callable[[asyncio.Task[CommandResult]], Awaitable[None]], timeout: float
) -> None:
    """Run the hanging program in `folder`, `end` it once all its processes exist; check that none is left."""
    names = ("itself", "child", "session", "daemon")
    task = asyncio.ensure_future(
        command.run(
            f"{sys.executable} -I -S {HANGING} {folder}; true",
            b"x" * 1_000_000,
            cwd=folder,
            env=dict(os.environ),
            timeout=timeout,
        )
    )
    await eventually(lambda: all((folder / name).exists() for name in names))
    pids = [int((folder / name).read_text()) for name in names]
    await end(task)
    await eventually(lambda: not any(map(alive, pids)))


@linux
def test_a_timeout_kills_the_whole_process_tree(tmp_path: Path) -> None:
    """R15: including daemons and children in other sessions, although they ignore SIGTERM."""

    async def end(task: asyncio.Task[CommandResult]) -> None:
        out = await task
        assert out.exit_code is None
        assert "with everything it had started" in out.problem

    asyncio.run(_check_tree(tmp_path, end, timeout=4))


@linux
def test_cancelling_a_run_kills_its_process_tree(tmp_path: Path) -> None:
    """R15: even if it is cancelled twice."""

    async def end(task: asyncio.Task[CommandResult]) -> None:
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(_check_tree(tmp_path, end, timeout=LONG))


@linux
@pytest.mark.parametrize(
    "line",
    ["setsid sh -c '{daemon}' & wait; sleep 60", "env -i PATH=$PATH setsid sh -c '{daemon}; wait'; exit 0"],
    ids=["environment", "parents"],
)
def test_a_process_in_its_own_session_is_killed(tmp_path: Path, line: str) -> None:
    """R15: a daemon by its environment; a process with another environment by its parents."""
    started = tmp_path / "pid"
    line = line.format(daemon=f"sleep 60 & echo $! > {started}.new; mv {started}.new {started}")

    async def body() -> None:
        task = asyncio.ensure_future(command.run(line, b"", cwd=tmp_path, env=dict(os.environ), timeout=LONG))
        await eventually(started.exists)
        pid = int(started.read_text())
        task.cancel()
        await asyncio.wait({task})
        await eventually(lambda: not alive(pid))

    asyncio.run(body())


@linux
def test_no_zombies_or_descriptors_are_left() -> None:
    """R15."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def zombies() -> list[str]:
        found = []
        for task in Path("/proc/self/task").iterdir():
            found += (task / "children").read_text().split()
        return [pid for pid in found if not alive(int(pid))]

    async def body() -> None:
        before = descriptors()
        for line, timeout in (("exit 1", LONG), ("yes", 0.2), ("sleep 9", 0.1)):
            await command.run(line, b"x" * 1_000_000, cwd=Path("/"), env=dict(os.environ), timeout=timeout)
        await eventually(lambda: descriptors() == before)
        assert not zombies()

    asyncio.run(body())


# Commands that cannot run.


def test_a_missing_program_is_reported() -> None:
    """R15: by the shell's exit code; without a shell, by a sentence."""
    assert run("no-such-program-anywhere").exit_code == 127
    out = run(["no-such-program-anywhere"])
    assert out.exit_code == 127
    assert "no program no-such-program-anywhere" in out.problem


def test_a_file_that_is_not_executable_is_reported(tmp_path: Path) -> None:
    """R15."""
    script = tmp_path / "script"
    script.write_text("echo hello")
    assert run(str(script)).exit_code == 126
    out = run([str(script)])
    assert (out.exit_code, "chmod" in out.problem) == (126, True)
    script.chmod(0o755)
    assert "#!" in run([str(script)]).problem


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    """R15."""
    out = run("true", cwd=tmp_path / "gone")
    assert out.exit_code is None
    assert "gone" in out.problem


def test_arguments_with_a_nul_or_too_many_are_reported() -> None:
    """R15: arguments that no system call accepts are a problem."""
    assert run(["echo", "a\0b"]).problem
    assert run(["echo", *["x" * 100_000] * 200]).problem


def test_a_failure_to_start_a_process_is_reported() -> None:
    """R15: here, no descriptors are left for its pipes."""
    program = (
        "import asyncio, os, resource\n"
        "from pathlib import Path\n"
        "from relay.rules import command\n"
        "async def main():\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/dev/fd')) + 2,) * 2)\n"
        "    out = await command.run('true', b'', cwd=Path('/'), env={}, timeout=9)\n"
        "    assert out.exit_code is None, out\n"
        "    print(out.problem)\n"
        "asyncio.run(main())"
    )
    out = asyncio.run(
        command.run([sys.executable, "-c", program], b"", cwd=Path.cwd(), env=dict(os.environ), timeout=LONG)
    )
    assert b"No process could be started" in out.stdout, out.stderr.decode()
