"""Starts a session: from the parsed command line to a running agent, in as few steps as possible.

    relay wrap ──fork──→ shim ──fork──→ agent
        │                  └───fork, exec──→ session (asyncio, the broker's client, everything else)
        └─ the terminal client, waiting on a socket pair

Command-line errors are reported before the first fork. This module is on the path to the agent's first byte:
it imports little.
"""

from __future__ import annotations

import os
import sys
from _socket import socketpair  # its wrapper `socket` costs 2 ms

from relay import project
from relay.agents.markers import without_markers
from relay.control.claiming import claim, claim_free
from relay.control.name_claim import Claim
from relay.errors import RelayError, UsageError
from relay.home import PYTHON, Home, share_home
from relay.names import DEFAULT_TEAM, key
from relay.session.bridge import bridged
from relay.session.log import open_log
from relay.session.options import Options
from relay.shim import ring
from relay.shim import signals as signal
from relay.shim.adoption import adopt_orphans
from relay.shim.pty import COLUMNS, ROWS, Pty, get_size, resolve
from relay.shim.shim import Shim
from relay.shim.user_terminal import AttachedTerminal
from relay.terminal.client import FORWARDED, HANDLED, Client, TerminalMode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping
    from typing import Any

    from relay.shim.shim import AgentOrder

FIRST_WORDS = 0.03
"""Seconds to leave the agent for its first output before starting the session, which would delay it."""

LOADED = (
    "relay.control.lineage",
    "relay.shim.aside",
    "relay.shim.command_keys",
    "relay.shim.control",
    "relay.shim.pipes",
    "relay.shim.process_wait",
    "relay.shim.replayed",
    "relay.shim.session_process",
    "relay.storage.append",
)
"""Modules that a shim may need later. By then, an update may have replaced their files."""


def wrap(options: Options, env: Mapping[str, str] | None = None) -> int:
    """Run the agent in this terminal; return its exit code. Raise RelayError if it cannot be started."""
    share_home(os.environ)
    env = without_markers(os.environ if env is None else env)
    if inside := env.get("RELAY_SESSION"):
        raise UsageError(
            f"this terminal is already inside a relay session ({env.get('RELAY_NAME', inside)}): relay would "
            "read its agent's words twice. Start this agent from a terminal outside it."
        )
    if not options.command:
        raise UsageError("no command was given. Try `relay wrap bash`.")
    path = resolve(options.command[0], env)
    project.current()
    home = Home.from_env(env)
    if options.profile:
        from relay.agents import catalog

        catalog.expect(options.profile, home)
    if options.broker:
        from relay.transport.endpoint import endpoints

        endpoints(options.broker)
    _fill_standard()
    home.ensure()
    team = options.team or env.get("RELAY_TEAM") or DEFAULT_TEAM
    command = options.command[0]
    claimed = claim(home, team, options.name) if options.name else claim_free(home, team, command)
    if options.supervision and options.supervision.get("fleet"):
        from relay.control.caller import caller

        claimed.apart = caller(home) is None
    if options.worktree:
        path = _enter_worktree(options, env, home, claimed)
    mode = TerminalMode(0, 1)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Otherwise nobody would learn that a short program has ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    shown = _report(options, env, home)
    told = [] if options.detached else shown  # the user may not see what started a detached agent
    channel, theirs = socketpair()
    # Until handlers are installed, a signal would leave the terminal raw, or the agent without a terminal.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    # Set raw mode before the agent can draw: its output must not pass through a cooked terminal.
    if not options.detached and mode.in_foreground():
        mode.set_raw()
    try:
        child = os.fork()
    except OSError as error:
        mode.restore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        raise RelayError(f"cannot start a process: {error.strerror}. Try again later.") from None
    if child == 0:
        channel.close()
        _be_shim(options, env, home, claimed, path, mode, theirs, told)
    theirs.close()
    os.close(claimed.fd)
    return Client(channel, mode, claimed.team, claimed.name).run()


def _report(options: Options, env: Mapping[str, str], home: Home) -> list[str]:
    """Print the notices about the configuration before an agent can draw over them; return them.

    `relay up` does so once for its whole fleet.
    """
    if options.supervision and options.supervision.get("fleet"):
        return []
    from relay.session.preflight import check

    found = check(home, env, options.config, options.rules)
    for text in found:
        print(f"relay: {text}", file=sys.stderr, flush=True)
    return found


def _enter_worktree(options: Options, env: dict[str, str], home: Home, claimed: Claim) -> str:
    """Prepare the agent's worktree, and change into it; return the path of the agent's command.

    env: gets the new PWD, and loses variables that would point git elsewhere. Raise WorktreeError on failure.
    """
    from pathlib import Path

    from relay.supervision.git import LOCAL
    from relay.supervision.worktree import AgentWorktree, WorktreeSpec

    try:
        worktree = AgentWorktree(
            WorktreeSpec(path="../{repo}-worktrees/{branch}", branch=options.worktree),
            claimed.name,
            team=claimed.team,
            home=home,
            directory=Path.cwd(),
            env=env,
            progress=lambda line: print(f"relay: {line}", file=sys.stderr, flush=True),
        ).prepare(lasting=False)
        os.chdir(worktree.path)
        env["PWD"] = str(worktree.path)
        for name in LOCAL:
            env.pop(name, None)
        return resolve(options.command[0], env)
    except BaseException:
        claimed.release()
        raise


def _be_shim(
    options: Options,
    env: dict[str, str],
    home: Home,
    claimed: Claim,
    path: str,
    mode: TerminalMode,
    channel: _socket.socket,
    told: list[str],
) -> None:
    """Become the shim: start the agent, then its session. Never return.

    told: the notices about the configuration that the user has already seen.
    """
    pty = None
    try:
        foreground = mode.in_foreground()
        pipes = _redirected(options, mode)
        source, sink = _terminal(pipes) if pipes and not mode.interactive else (0, 1)
        os.setsid()
        own = {0, 1, 2, max(sink, 0), claimed.fd, channel.fileno()}
        if options.detached:
            _close_others(own | _named(options.command))
        session_env = dict(os.environ)
        session_id = os.urandom(8).hex()
        env.update(
            RELAY_NAME=claimed.name,
            RELAY_TEAM=claimed.team,
            RELAY_SESSION=session_id,
            RELAY_SOCKET=claimed.socket,
            RELAY_SPAWN="1" if (options.supervision or {}).get("spawns") else "",
        )
        _add_relay(env)
        # Not next to the sockets: agents distrust paths below /tmp. The next session with this name uses it
        # again, and so cleans up after a killed one.
        directory = os.path.join(home.state_dir, "native", f"{key(claimed.name)}@{key(claimed.team)}")
        plain = env
        command, env, bridge = bridged(options, env, home, directory, claimed.socket)
        claimed.note(os.getpid())  # the agent's ancestor, until the agent's own pid is known
        size = None if options.detached else get_size(1) or get_size(0) or get_size(2)
        piped = bool(pipes) or not (options.detached or mode.interactive)
        supervised = not piped and (options.supervision or {}).get("restart", "no") != "no"
        ours = (*FORWARDED, signal.SIGTTOU, signal.SIGTTIN)
        like: dict[str, Any] = {
            # The modes of a background job's terminal belong to another program, usually a shell.
            "attributes": None if options.detached or not foreground else mode.saved,
            # Input from a pipe is not typed; and a terminal that does not show the agent's output
            # does its own echo.
            "echo": not piped,
            "defaults": [number for number in ours if signal.getsignal(number) != signal.SIG_IGN],
        }
        try:
            # Files and pipes get the agent's output byte for byte.
            shown = options.detached or os.isatty(1)
            size = size or (COLUMNS, ROWS, 0, 0)
            pty = Pty.spawn(path, command, env, size=size, line_feeds_return=shown, pipes=pipes, **like)
            adopt_orphans()  # this and the next line run while the kernel loads the agent
            memory = ring.make()
            pty.await_start(command[0])
        except RelayError as error:
            if pty is not None:
                pty.hang_up(signal.SIGKILL)
            if bridge["bridge"] or bridge["record"]:
                from relay.agents.hook_setup import remove

                remove(directory)
            _tell_end(channel, str(error), error.exit_code)
            os._exit(error.exit_code)
        claimed.note(pty.pid)
        # Ignore signals only now: the agent would have inherited it. This also discards signals that the
        # caller's process group got before this process left the group; the client forwards them.
        for number in ours:
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        _close_others({*own, memory, pty.master, pty.slave, *pty.pipes.values()})
        shim = Shim(
            pty,
            memory,
            name=claimed.name,
            channel=channel.detach(),
            detached=options.detached,
            started=lambda session: claimed.note(shim.agent_pid, session),
            spawn=lambda order, last: _spawn_again(like, home, claimed, order, last),
            supervised=supervised,
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        if not options.detached:
            attached = AttachedTerminal(source, sink, interactive=mode.interactive, saved=mode.saved)
            if sink > 2:
                os.close(sink)
            shim.begin(attached, foreground=foreground)
        if pipes:
            shim.pipe({number: os.dup(number) for number in pipes})
        _leave_terminal(home)
        hello = {
            "id": session_id,
            "run": session_id,
            "options": options.public(),
            "env": env,
            "claim": {"name": claimed.name, "team": claimed.team, "socket": claimed.socket},
            "agent": pty.pid,
            "size": pty.size[:2],
            "piped": piped,
            "line_feeds_return": pty.line_feeds_return,
            "unbridged": {name: plain.get(name) for name in env if env[name] != plain.get(name)},
            **bridge,
            "bridge_dir": directory,
            "restarts": 0,
            "kept": "",
            "told": told,
            "supervised": supervised,
            "resumes": bool((options.supervision or {}).get("fresh")),
        }

        def launch(fds: dict[str, int]) -> int:
            return _start_session(options, home, session_env, fds)

        def may(pid: int, operation: str) -> str | None:
            return _may(home, shim, claimed.name, hello, pid, operation)

        def keep_session() -> None:
            try:
                ring.reserve(memory)
                shim.keep_session(launch, hello, claimed.socket, may)
            except Exception as error:  # noqa: BLE001 - nobody would notice an agent without a session
                if not isinstance(error, RelayError):
                    shim.loop.log(error)
                shim.terminals.notices.add(str(error))
                pty.hang_up(signal.SIGKILL)
            shim.loop.attempt(_load)

        shim.beginning = shim.loop.later(FIRST_WORDS, keep_session)
        shim.run()
        claimed.release()
    except BaseException:  # noqa: BLE001 - our own bug; a forked process must not return
        import traceback

        sys.stderr.write(traceback.format_exc())
        sys.stderr.flush()
        if pty is not None:
            pty.hang_up(signal.SIGHUP)
    finally:
        os._exit(0)


def _start_session(options: Options, home: Home, env: dict[str, str], fds: dict[str, int]) -> int:
    """Start a session process with the descriptors `fds`; return its pid. Raise OSError.

    It runs the code on disk, unless a program passed handlers, which only a fork inherits.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the session can handle it
        for fd in fds.values():
            os.set_inheritable(fd, True)
        if options.registry is None and options.memory is None:
            main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
            os.execve(sys.executable, [*PYTHON, main, str(fds["orders"])], env)
        _close_others({0, 1, 2, *fds.values()})
        from relay.session.__main__ import run

        code = run(fds["orders"], options)
    except BaseException:  # noqa: BLE001 - logged; the shim tells the user; a fork must not return
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _redirected(options: Options, mode: TerminalMode) -> list[int]:
    """Return which of the agent's descriptors 0, 1 and 2 are pipes, not its terminal.

    If only standard error is redirected, the user still types to the agent, so it keeps its whole terminal.
    """
    if options.detached or options.terminal or (mode.interactive and not options.pipe):
        return []
    return [fd for fd in range(3) if not os.isatty(fd)]


def _terminal(pipes: list[int]) -> tuple[int, int]:
    """Return the user's terminal as descriptors to read and to write, given that `pipes` are not terminals.

    Read it only if it is the agent's standard input: otherwise another program, such as a pager, may read it.
    """
    shown = next((fd for fd in (1, 2, 0) if fd not in pipes), -1)
    if shown < 0:
        try:
            shown = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
        except OSError:
            pass  # the user has no terminal
    return -1 if 0 in pipes else 0, shown


def _spawn_again(like: dict[str, Any], home: Home, claimed: Claim, order: AgentOrder, last: Pty) -> Pty:
    """Start an agent in place of the `last` one. Raise RelayError or OSError."""
    try:
        path = resolve(order.argv[0], order.env)
        os.chdir(order.cwd)
        lines, pipes = last.line_feeds_return, tuple(order.pipes)
        pty = Pty.spawn(
            path, order.argv, order.env, size=last.size, line_feeds_return=lines, pipes=pipes, **like
        )
        pty.await_start(order.argv[0])
    except (RelayError, OSError) as error:
        _note_failure(home, claimed, error)
        raise
    claimed.note(pty.pid)
    return pty


def _note_failure(home: Home, claimed: Claim, error: RelayError | OSError) -> None:
    """Note the failed restart in the agent's record; its session has ended."""
    why = f"could not be started again: {str(error).rstrip('.')}"
    try:
        import time

        from relay.supervision.records import Records
        from relay.supervision.states import Phase

        Records(home).change(
            claimed.team, claimed.name, lambda record: record.enter(Phase.FAILED, time.time(), why)
        )
    except Exception as problem:  # noqa: BLE001 - a full disk, or modules of another version
        sys.__excepthook__(type(problem), problem, problem.__traceback__)


def _may(home: Home, shim: Shim, name: str, hello: dict[str, Any], fd: int, operation: str) -> str | None:
    """Return why the process connected to `fd` may not ask the shim for `operation`, or None if it may."""
    from relay.control.lineage import Lineage, refusal
    from relay.peer import peer

    why = refusal(home, Lineage(shim.agent_pid, os.getpid(), shim.session_pid), fd, operation)
    if why is not None:
        import json
        import time

        from relay.storage.append import append  # relay.storage.journal is too large for a shim

        entry = {"time": time.time(), "event": "refused", "session": hello["id"], "name": name}
        entry |= {"operation": operation, "pid": peer(fd)[0]}
        try:
            journal = os.open(home.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                append(journal, json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            finally:
                os.close(journal)
        except OSError:
            pass  # for example, the disk is full
    return why


def _load() -> None:
    """Import what the shim may need later."""
    for name in LOADED:
        __import__(name)


def _add_relay(env: dict[str, str]) -> None:
    """Append the directory of the `relay` command to the agent's PATH if no `relay` is on it."""
    folder = os.path.dirname(sys.executable)  # where a virtual environment has its commands
    try:
        resolve("relay", env)
    except RelayError:
        if os.access(os.path.join(folder, "relay"), os.X_OK):
            env["PATH"] = os.pathsep.join((env.get("PATH") or os.defpath, folder))


def _fill_standard() -> None:
    """Open those of descriptors 0, 1 and 2 that the caller closed, so no other file gets their numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def _named(command: list[str]) -> set[int]:
    """Return the descriptors that `command` names, such as those of bash's process substitution, `<(...)`."""
    if not any("/fd/" in word for word in command):
        return set()
    import re

    return {int(number) for word in command for number in re.findall(r"/(?:dev|self)/fd/(\d{1,9})", word)}


def _close_others(keep: set[int]) -> None:
    """Close every inherited descriptor except `keep`."""
    try:
        # With a limit of a million descriptors, closing each one is slow; this lists the open ones.
        opened = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        opened = list(range(256))
    for fd in set(opened) - keep:
        try:
            os.close(fd)
        except OSError:
            pass  # the listing's own descriptor


def _leave_terminal(home: Home) -> None:
    """Redirect descriptor 0 to /dev/null, and 1 and 2 to the session's log."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        log = open_log(home)
    except OSError:
        log = null
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in {null, log}:
        os.close(fd)


def _tell_end(channel: _socket.socket, text: str, code: int) -> None:
    import json

    try:
        channel.sendall(json.dumps({"event": "exit", "code": code, "notices": [text]}).encode() + b"\n")
    except OSError:
        pass  # the client has gone
