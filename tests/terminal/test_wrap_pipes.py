"""Input and output that are not terminals, and the exit codes that scripts rely on."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator import RELAY, Emulator

from forkserver import shell_command
from support import PATIENCE, Relay, wait_until

pytestmark = pytest.mark.shared_home

Open = Callable[..., Emulator]


def _run(
    relay: Relay, script: str, timeout: float = 60, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a shell script in which `relay` is the command, without a terminal."""
    return subprocess.run(
        ["bash", "-c", script.replace("relay wrap", f"{shell_command()} wrap")],
        env={**relay.environment, "PYTHONSAFEPATH": "1"},
        cwd=cwd or relay.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("printf 'one\\ntwo\\n' | relay wrap cat", "one\ntwo\n"),
        ("printf 'one\\ntwo' | relay wrap cat", "one\ntwo"),
        ("relay wrap cat < /dev/null", ""),
        ("printf 'one\\n' > file; relay wrap cat < file", "one\n"),
        ("echo word | relay wrap sh -c 'read line; echo got $line'", "got word\n"),
        ("relay wrap echo out < /dev/null | cat", "out\n"),
        ("relay wrap echo out > file; cat file", "out\n"),
        ("relay wrap sh -c 'echo out; echo err >&2' 2> /dev/null", "out\n"),
        ("relay wrap --tty sh -c 'echo err >&2' 2> /dev/null", "err\n"),
        ("printf 'one\\ntwo' | relay wrap --tty cat", "one\ntwo"),
        ("relay wrap --tty sh -c '[ -t 0 ] && [ -t 1 ] && echo terminal' < /dev/null", "terminal\n"),
        ("relay wrap echo closed <&-", "closed\n"),
        ("relay wrap echo closed 2>&- <&-", "closed\n"),
        ("relay wrap sh -c 'echo x > file' >&- 2>&- <&-; cat file", "x\n"),
        ("seq 20000 | relay wrap sh -c 'cat > got'; seq 20000 | cmp - got && echo same", "same\n"),
    ],
)
def test_input_and_output_may_be_redirected(
    script: str, expected: str, shared: Relay, tmp_path: Path
) -> None:
    run = _run(shared, script, cwd=tmp_path)
    assert (run.stdout.decode(), run.returncode) == (expected, 0), run.stderr.decode()


@pytest.mark.parametrize(
    "script", ["relay wrap --tty bash < /dev/null", "echo 'echo hi' | relay wrap --tty bash"]
)
def test_a_program_with_line_editing_ends_with_its_input(script: str, shared: Relay, tmp_path: Path) -> None:
    run = _run(shared, script, cwd=tmp_path)
    assert run.returncode == 0
    assert "echo" not in script or b"\nhi\n" in run.stdout


def test_closing_the_output_early_ends_the_agent(shared: Relay, tmp_path: Path) -> None:
    for option in ("", "--tty"):
        run = _run(shared, f"relay wrap {option} yes | head -1; echo ${{PIPESTATUS[@]}}", cwd=tmp_path)
        assert run.stdout == b"y\n141 0\n"
        assert run.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full: Linux only")
def test_output_that_cannot_be_written_is_an_error(shared: Relay, tmp_path: Path) -> None:
    """Without relay, the agent itself would fail, as on a full disk."""
    for command in ("relay wrap -n full echo out", "relay wrap -n full sh -c 'seq 20000'"):
        run = _run(shared, f"{command} > /dev/full", cwd=tmp_path)
        assert run.returncode != 0
        assert run.stderr == b"relay: the output of full cannot be written: No space left on device.\n"
    run = _run(shared, "relay wrap -n full sh -c 'echo out; exit 7' > /dev/full", cwd=tmp_path)
    assert run.returncode == 7


def test_binary_output_into_a_pipe_is_exact(shared: Relay, tmp_path: Path) -> None:
    data = bytes(range(256)) * 300
    (tmp_path / "data").write_bytes(data)
    assert _run(shared, "relay wrap --tty cat data | cat", cwd=tmp_path).stdout == data
    assert _run(shared, "relay wrap cat < data | cat", cwd=tmp_path).stdout == data


def test_megabytes_pass_in_both_directions(shared: Relay, tmp_path: Path) -> None:
    script = "seq 600000 > in; relay wrap cat < in | cat > out; cmp in out && echo same"
    assert _run(shared, script, timeout=300, cwd=tmp_path).stdout == b"same\n"


def test_a_slow_reader_makes_the_agent_wait(shared: Relay, tmp_path: Path) -> None:
    """Little is in flight while nobody reads, and all of it arrives."""
    (tmp_path / "agent.py").write_text(
        "import os, select\n"
        "sent = 0\n"
        "os.set_blocking(1, False)\n"
        "while sent < 64 << 20 and select.select([], [1], [], 2)[1]:\n"
        "    sent += os.write(1, bytes(65536))\n"
        "open('sent', 'w').write(str(sent))\n"
    )
    os.mkfifo(tmp_path / "sent")
    reader = "{ read sent < sent; wc -c; echo $sent; }"
    run = _run(shared, f"relay wrap {sys.executable} agent.py | {reader}", cwd=tmp_path)
    arrived, sent = map(int, run.stdout.split())
    assert arrived == sent < 1 << 20


def test_ctrl_c_ends_the_pipeline_as_without_relay(shell: Open) -> None:
    outer = shell()
    outer.type("relay wrap sh -c 'echo up >&2; exec sleep 1000' | cat\r")
    outer.wait(lambda: "up" in outer.lines())
    outer.type("\x03")
    outer.wait(lambda: outer.lines()[-1] == "shell>")
    outer.type("echo code ${PIPESTATUS[0]}\r")
    outer.wait(lambda: "code 130" in outer.lines())


def test_only_the_agents_standard_output_goes_into_a_pipeline(shell: Open) -> None:
    outer = shell()
    script = "echo out; echo err >&2; echo own > /dev/tty"
    outer.type(f"relay wrap sh -c '{script}' < /dev/null | tr a-z A-Z\r")
    outer.wait(lambda: {"OUT", "err", "own"} <= set(outer.lines()))


def test_with_only_standard_error_redirected_the_agent_has_its_terminal(shell: Open, home: Path) -> None:
    outer = shell()
    outer.type("relay wrap sh -c '[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all' 2> errors\r")
    outer.wait(lambda: "all" in outer.lines())


def test_directives_in_piped_output_are_read(relay: Relay) -> None:
    """Without the CRs that a terminal would add, a directive still starts its line, drawn screen or not."""
    script = "printf '\\033[2J\\033[Hone\\ntwo\\n@memory:save it was read\\nlast\\n'; sleep 0.2"
    (relay.home / "agent.sh").write_text(script + "\n")
    _run(relay, "relay wrap -n Piped sh agent.sh | cat")
    wait_until(lambda: "it was read" in relay("memory", "list", "--name", "Piped").stdout)


def test_notices_do_not_go_into_redirected_output(relay: Relay, tmp_path: Path) -> None:
    (tmp_path / "relay.config.py").write_text("")  # untrusted, so there is a notice
    wait = f"until {RELAY} explain $RELAY_NAME > /dev/null 2>&1; do sleep 0.05; done"
    run = _run(relay, f"relay wrap sh -c '{wait}; echo hi' > out; cat out", cwd=tmp_path)
    assert run.stdout == b"hi\n"
    assert b"relay trust" in run.stderr


def test_with_only_output_redirected_the_terminal_edits_and_echoes_lines(shell: Open, home: Path) -> None:
    """The terminal keeps its line editing and echo, and Ctrl-C goes to the agent."""
    outer = shell()
    outer.type("relay wrap sh -c 'trap \"echo no\" INT; read a; read b; echo $a $b' > file\r")
    outer.wait(lambda: (home / "file").exists())
    outer.wait(lambda: outer.modes()[3] & 2 and not outer.screen.bracketed_paste)
    outer.type("onf\x7fe\r")
    outer.type("two\r")
    outer.wait(lambda: (home / "file").read_bytes() == b"one two\n")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("sh -c 'exit 7'", 7),
        ("sh -c 'kill -TERM $$'", 143),
        ("sh -c 'kill -SEGV $$'", 139),
        ("no-such-command", 127),
        ("./no-such-file", 127),
        ("''", 127),
        ("./plain", 126),
        ("./folder", 126),
        ("./wrong", 126),
        ("./script one two", 3),
    ],
)
def test_the_exit_code_is_the_agents(command: str, code: int, shared: Relay, tmp_path: Path) -> None:
    files = {"plain": ("text", 0o644), "wrong": ("#!/no/such/interpreter\n", 0o755)}
    files["script"] = ("echo $1-$2\nexit 3\n", 0o755)  # no #! line: a shell runs it
    for name, (text, mode) in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    (tmp_path / "folder").mkdir()
    run = _run(shared, f"relay wrap {command}", cwd=tmp_path)
    assert run.returncode == code, run.stderr
    if code in {126, 127}:
        assert run.stderr.startswith(b"relay: ") and run.stderr.count(b"\n") == 1
        assert run.stdout == b""
    else:
        assert run.stderr == b""
    if code == 3:
        assert run.stdout == b"one-two\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "no command was given"),
        ("--", "no command was given"),
        ("-n", "-n needs a NAME"),
        ("--wrong true", "no option '--wrong'"),
        ("-n 'two words' true", "not a valid name"),
        ("-n a/b true", "not a valid name"),
        ("-n '' true", "-n needs a NAME"),
        ("-n ../a true", "not a valid name"),
        (f"-n {'n' * 300} true", "300 characters"),
        ("-n $'\\e[31mred' true", "not a valid name"),
        ("-n $'\\xff' true", "not a valid name"),
        ("-t 'two words' true", "not a valid team"),
        ("--detach=yes true", "takes no value"),
    ],
)
def test_an_invalid_command_line_is_explained(
    arguments: str, message: str, shared: Relay, tmp_path: Path
) -> None:
    run = _run(shared, f"relay wrap {arguments}", cwd=tmp_path)
    assert run.returncode in {1, 2}
    error = run.stderr.decode()
    assert error.startswith("relay: ") and message in error and error.count("\n") == 1
    assert "Traceback" not in error and "\x1b" not in error and len(error) < 500
    assert run.stdout == b""


def test_a_name_in_use_is_refused(shared: Relay, tmp_path: Path) -> None:
    shared("wrap", "-d", "-n", "Taken", "cat")
    run = _run(shared, "relay wrap -n tAKEN true", cwd=tmp_path)
    assert run.returncode == 1
    assert b"tAKEN is running" in run.stderr and b"hoose another name" in run.stderr


def test_a_socket_path_that_is_too_long_is_explained(relay: Relay) -> None:
    deep = relay.home / ("d" * 90)
    run = _run(relay, f"RELAY_HOME={deep} relay wrap true")
    assert run.returncode == 1
    assert b"socket path" in run.stderr and b"RELAY_HOME" in run.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere: a read-only home needs another user")
def test_a_read_only_home_is_explained(relay: Relay) -> None:
    folder = relay.home / "fixed"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    run = _run(relay, f"RELAY_HOME={folder}/home relay wrap true")
    assert run.returncode == 1
    assert b"Make it writable" in run.stderr


@pytest.mark.parametrize("place", ["/proc/relay", "/dev/null/relay", "/dev/null"])
def test_a_home_that_cannot_be_created_is_explained(place: str, shared: Relay, tmp_path: Path) -> None:
    run = _run(shared, f"RELAY_HOME={place} relay wrap true", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stderr.startswith(b"relay: cannot use the directory") and run.stderr.count(b"\n") == 1


def test_relay_works_without_the_home_and_term_variables(wrap: Open, home: Path) -> None:
    outer = wrap(
        "sh", "-c", "echo TERM=$TERM", env={"HOME": None, "TERM": None, "LC_ALL": None, "LANG": None}
    )
    assert outer.end() == 0
    assert outer.output == b"TERM=\r\n"


def test_undecodable_bytes_in_environment_and_arguments_are_passed_on(shared: Relay, tmp_path: Path) -> None:
    run = _run(shared, "X=$'\\xff\\xfe' relay wrap sh -c 'printf %s \"$X\" $1' x $'\\xfd'", cwd=tmp_path)
    assert run.stdout == b"\xff\xfe\xfd"


def test_relay_inside_relay_is_refused(shared: Relay, tmp_path: Path) -> None:
    run = _run(shared, "relay wrap -n Outer sh -c 'relay wrap true'", cwd=tmp_path)
    assert run.returncode == 2
    assert b"already inside a relay session (Outer)" in run.stderr


def test_the_agents_environment_names_its_session(shared: Relay, tmp_path: Path) -> None:
    """RELAY_NAME, RELAY_TEAM, RELAY_SESSION, RELAY_SOCKET; directory and arguments are the caller's."""
    command = (
        'printf "%s|" "$RELAY_NAME" "$RELAY_TEAM" "$RELAY_SESSION" "$(test -S $RELAY_SOCKET; echo $?)" $PWD'
    )
    wait = 'until test -S "$RELAY_SOCKET"; do sleep 0.02; done'
    run = _run(shared, f"relay wrap -n Alice -t Reds sh -c '{wait}; {command}'", cwd=tmp_path)
    name, team, session, socket, cwd, _ = run.stdout.decode().split("|")
    assert (name, team, socket, cwd) == ("Alice", "Reds", "0", str(tmp_path))
    assert len(session) == 16


def test_ignored_signals_stay_ignored(shared: Relay, tmp_path: Path) -> None:
    """Signals ignored as under nohup stay so; the agent receives all others."""
    ignored = "[n for n in range(1, 32) if s.getsignal(n) == s.SIG_IGN]"
    probe = f"import signal as s; print({ignored}, s.pthread_sigmask(0, []))"
    (tmp_path / "probe.py").write_text(probe)
    alone = _run(shared, f"trap '' HUP USR1; {sys.executable} probe.py", cwd=tmp_path)
    run = _run(shared, f"trap '' HUP USR1; relay wrap {sys.executable} probe.py", cwd=tmp_path)
    assert run.stdout.replace(b"\r", b"") == alone.stdout
    assert str(int(signal.SIGHUP)).encode() in run.stdout


def test_an_agent_is_waited_for_although_its_callers_ignored_sigchld(shared: Relay, tmp_path: Path) -> None:
    """D15: a short program was not seen to end, and relay waited for ever."""
    probe = "import signal as s; print(s.getsignal(s.SIGCHLD) == s.SIG_DFL)"
    (tmp_path / "hooks.json").write_text("{}")  # checked by another child
    (tmp_path / "start.py").write_text(  # not through a shell, which would reset the signal
        "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    command = [*shared.command[1:], "wrap", "--", sys.executable, "-c", probe]
    run = subprocess.run(
        [sys.executable, "start.py", *command],
        env=shared.environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )
    assert run.stdout.replace(b"\r", b"") == b"True\n", run.stderr
    assert b"hooks.json: is not trusted" in run.stderr


def test_a_detached_agent_does_not_keep_the_callers_descriptors(relay: Relay, home: Path) -> None:
    """An attached agent inherits them, as without relay, but its session does not; detached, neither does."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream:
        subprocess.run(
            ["bash", "-c", f"{RELAY} wrap -d -n Daemon cat 7>&{write}"],
            env=relay.environment,
            cwd=home,
            pass_fds=[write],
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        os.close(write)
        assert "Daemon" in relay("ps").stdout  # it exists as soon as `wrap -d` has returned
        assert stream.read() == b""
    wait_until(lambda: "Daemon" in relay("ps").stdout)


def test_a_detached_agent_has_the_descriptors_that_its_command_names(relay: Relay, tmp_path: Path) -> None:
    """C16: those of process substitution. Its shim does not keep them: the agent sees their end."""
    subprocess.run(
        ["bash", "-c", f"{RELAY} wrap -d -n Cat sh -c 'cat \"$0\" > read' <(echo from a substitution)"],
        env=relay.environment,
        cwd=tmp_path,
        check=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    wait_until(lambda: "Cat" not in relay("ps").stdout)
    assert (tmp_path / "read").read_text() == "from a substitution\n"
