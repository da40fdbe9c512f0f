"""A warm interpreter that forks `relay` processes for tests: a start costs some 10 ms instead of 200 to 900.

    test ── subprocess ──→ fork server (relay imported, one thread) ── clone ──→ `python -m relay ...`
                                                                                   └── fork ──→ its session

What it starts is a child of the test process, as after fork(2) and execve(2): descriptors, signals,
environment, working directory, command line and exit status are its own, and ps(1) shows what it would show.
There is one server for each test process, and every process starts from the same state: nothing that a test
does in its own interpreter reaches it. A `relay` that such a process starts, as `relay up` does, comes from
the server, too; a stub in its place ends as it ends.

execve(2) starts everything else: another program, an environment in which Python itself would start
differently, what a test with the mark `real_exec` starts, and everything on systems other than Linux.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import gc
import io
import json
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from forkclient import ADDRESS, MOST_FILES, end_as

ROOT = Path(__file__).resolve().parent.parent

COMMAND = [sys.executable, "-m", "relay"]

_OWN_COMMAND = [sys.executable, "-P", "-m", "relay"]  # as relay itself starts it

_SESSION = str(ROOT / "relay" / "session" / "__main__.py")

_LARGEST = 100_000
"""Bytes of a request; a larger command line or environment goes through execve(2)."""

_address = ""  # in the processes that the server has started

_CLONE_PARENT = 0x8000  # sched.h: the child's parent is the caller's, here the test process
_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)  # the number of the system call
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14  # prctl(2): where the kernel finds the command line and the environment

_fork_exec = subprocess._fork_exec  # type: ignore[attr-defined]  # what subprocess calls to start a process
_real_exec = False


def take_terminal() -> None:
    """Make standard input the controlling terminal; a `preexec_fn`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def real_exec() -> Iterator[None]:
    """Start processes with execve(2) meanwhile."""
    global _real_exec
    before, _real_exec = _real_exec, True
    try:
        yield
    finally:
        _real_exec = before


def install() -> None:
    """Have subprocess start `relay` from a fork server, which starts when it is first needed."""
    if sys.platform == "linux" and _CLONE > 0:
        subprocess._fork_exec = _start  # type: ignore[attr-defined]


def _start(args: list[str], *rest: Any) -> int:
    """Do what _posixsubprocess.fork_exec does, and take the same arguments; return the child's pid."""
    start = _Start.of(args, rest)
    if start is None or start.args[:3] != COMMAND or not warm(start.args, start.env) or not _server().works:
        return int(_fork_exec(args, *rest))
    return _server().start(start.request(), start.standard)


@dataclasses.dataclass
class _Start:
    """A call of _posixsubprocess.fork_exec that the server can carry out.

    standard: what becomes its descriptors 0, 1 and 2.
    """

    args: list[str]
    env: Sequence[bytes]
    cwd: str
    session: bool
    terminal: bool
    standard: list[int]

    @classmethod
    def of(cls, args: Sequence[str], rest: Sequence[Any]) -> _Start | None:
        """Return the call with these arguments, or None if it asks for more than the server can do."""
        (_, _, keep, cwd, env, stdin, _, _, stdout, _, stderr, _, failed, _, session, group, *ids) = rest
        preparation = ids[4]
        if group != -1 or ids[:4] != [None, None, None, -1] or set(keep) != {failed}:
            return None
        if preparation not in (None, take_terminal):
            return None
        if env is None:
            env = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in os.environ.items()]
        standard = [number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))]
        where = os.fsdecode(cwd) if cwd else os.getcwd()
        return cls(
            [os.fsdecode(word) for word in args], env, where, bool(session), preparation is not None, standard
        )

    def request(self) -> dict[str, Any]:
        return {
            "argv": self.args,
            "env": [os.fsdecode(each) for each in self.env],
            "cwd": self.cwd,
            "session": self.session,
            "terminal": self.terminal,
            "umask": _umask(),
        }


def shell_command() -> str:
    """Return the command `relay` of a shell script that has no terminal."""
    if _real_exec or subprocess._fork_exec is _fork_exec or not _server().works:  # type: ignore[attr-defined]
        return shlex.join(COMMAND)
    client = Path(__file__).with_name("forkclient.py")
    return shlex.join([sys.executable, "-I", "-S", str(client), str(_server().pid)])


@functools.cache
def _server() -> _ForkServer:
    return _ForkServer()


class _ForkServer:
    """The test process's side of its server."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("RELAY_", "PYTHON"))
        }
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env={**environment, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._server.pid
        self.works = self._channel.recv(100) == b"ready"

    def start(self, request: dict[str, Any], standard: list[int]) -> int:
        """Start a process with `standard` as its descriptors 0, 1 and 2; return its pid."""
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(request).encode()], standard)
            return int(self._channel.recv(100))


def warm(args: Sequence[str], env: Sequence[bytes] | None) -> bool:
    """Return True if the server can start this command."""
    if _real_exec or env is None or (list(args[:3]) != COMMAND and list(args[:4]) != _OWN_COMMAND):
        return False
    if sum(map(len, args)) + sum(map(len, env)) > _LARGEST:
        return False
    return b"LC_ALL=C.UTF-8" in env and not _affects_python(env)


def _affects_python(env: Iterable[bytes]) -> bool:
    """Return True if Python itself, with these variables, would start differently from the server's."""
    known = [b"PYTHONSAFEPATH="]
    if any(variable.startswith(b"RELAY_TEST_PATCH=") for variable in env):
        known.append(b"PYTHONPATH=")  # support.session_patch
    return any(
        each.startswith((b"PYTHON", b"COVERAGE_")) and not each.startswith(tuple(known)) for each in env
    )


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# The server, in a process of its own.


def main(channel: socket.socket) -> None:
    """Serve until the test process has gone."""
    import importlib
    import pkgutil

    import relay

    for module in pkgutil.walk_packages(relay.__path__, "relay."):
        if not module.name.endswith("__main__") and not module.name.startswith("relay.memory.mem0"):
            with contextlib.suppress(ImportError):  # extras, which need not be installed
                importlib.import_module(module.name)
    importlib.import_module("relay.__main__")
    importlib.import_module("relay.session.__main__")
    re._MAXCACHE = 10_000
    _compile()
    assert threading.active_count() == 1, "a module of relay starts a thread when it is imported"
    os.execve = _exec_session  # type: ignore[assignment]  # as a shim starts a session
    gc.collect()
    gc.freeze()  # no child copies these pages by looking at them
    try:
        _describe(["relay"], {})
        channel.send(b"ready")
    except OSError:
        channel.send(b"not here")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(ADDRESS.format(os.getpid()))
    listener.listen(64)
    global _address
    _address = ADDRESS.format(os.getpid())
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # until a child can handle them
    while True:
        for ready in select.select([channel, listener], [], [])[0]:
            if ready is listener:
                _serve(listener.accept()[0])
                continue
            data, fds, _, _ = socket.recv_fds(channel, 2 * _LARGEST, 3)
            if not data:
                return
            pid = _clone()
            if pid == 0:
                _become(json.loads(data), fds)
            for fd in fds:
                os.close(fd)
            channel.send(str(pid).encode())
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _compile() -> None:
    """Have the constructors of data classes and the caches of `re` and `ctypes` ready."""
    from relay import dataclass

    for kind in gc.get_objects():
        if isinstance(kind, type) and (known := vars(kind).get(dataclass._KNOWN)) is not None:
            made: Any = kind
            if made.__init__.__module__ == dataclass.__name__:  # it would be compiled by its first call
                frozen = made.__dataclass_params__.frozen
                made.__init__ = dataclass._compile_init(made, known, frozen=frozen)

    import encodings.idna  # noqa: F401 - of `getaddrinfo`

    from relay import lazy_re
    from relay.agents import catalog, updates
    from relay.directives.grammar import PREFIX, Grammar
    from relay.home import Home
    from relay.readers.auto import AutoReader
    from relay.session.active_config import ActiveConfig
    from relay.session.options import Options
    from relay.session.setup import Setup

    AutoReader(80, 24)
    for profile in catalog.made(updates.shipped(), {}):
        Grammar.of_terminal(lambda _: True, profile, prefix=PREFIX)
    nowhere = Home("/nowhere", "/nowhere", "/nowhere")
    Setup.load(Options(["sh"]), nowhere, Path("/"), ActiveConfig())
    for lazy in gc.get_objects():
        if isinstance(lazy, lazy_re._Pattern):
            re.compile(lazy.pattern, lazy._flags)


def _serve(connection: socket.socket) -> None:
    """Start a process for one of those started before. Another process waits for it, and sends its status."""
    peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    data, fds, _, _ = socket.recv_fds(connection, 2 * _LARGEST, 3)
    if data and peer[1] == os.getuid() and os.fork() == 0:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(data), fds)
        os.closerange(0, connection.fileno())
        os.closerange(connection.fileno() + 1, MOST_FILES)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for fd in fds:
        os.close(fd)


def _start_from_child(args: list[str], *rest: Any) -> int:
    """Do what _posixsubprocess.fork_exec does in a process that the server started."""
    start = _Start.of(args, rest)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with connection:
        try:
            if start is None or start.args[:4] != _OWN_COMMAND or not warm(start.args, start.env):
                raise ConnectionRefusedError
            connection.connect(_address)  # refused in another network namespace
        except OSError:
            return int(_fork_exec(args, *rest))
        socket.send_fds(connection, [json.dumps(start.request()).encode()], start.standard)
        pid = os.fork()
        if pid == 0:
            end_as(connection.fileno())
        return pid


def _clone() -> int:
    """Fork a child of this process's parent; return its pid, and 0 in the child."""
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    pid = int(api.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
    return pid


def _become(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Be the process of `request`, in a child. Never return."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    os.closerange(3, MOST_FILES)
    for number in request.get("closed", ()):
        os.close(number)
    for number in request.get("ignored", ()):
        signal.signal(number, signal.SIG_IGN)
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        take_terminal()
    os.umask(request["umask"])
    environment = dict(each.split("=", 1) for each in request["env"])
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        os.write(2, f"{request['cwd']}: {error.strerror}\n".encode())
        os._exit(127)
    from relay.__main__ import main as relay

    safe = "PYTHONSAFEPATH" in environment or request["argv"][1] == "-P"
    call = functools.partial(_unblocked, relay)
    _run(request["argv"], environment, call, path=[] if safe else [os.getcwd()])


def _unblocked(call: Callable[[], int]) -> int:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return call()


def _exec_session(path: str, argv: list[str], env: Mapping[str, str]) -> NoReturn:
    """Do what os.execve does; a session of this tree starts from what is imported already."""
    odd = _affects_python([os.fsencode(name) + b"=" for name in env])
    if argv[:3] != [sys.executable, "-P", _SESSION] or odd or not os.path.samefile(path, sys.executable):
        _execve(path, argv, env)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            if int(name) > 2 and not os.get_inheritable(int(name)):
                os.close(int(name))
    gc.freeze()  # the shim's objects must not close descriptors that the session opens
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    from relay.session.__main__ import run

    def patched() -> int:
        exec(env.get("RELAY_TEST_PATCH", ""), {"__name__": "sitecustomize"})
        return run(int(argv[3]))

    _run(argv, env, patched, path=[])


_execve = os.execve


def _run(argv: list[str], env: Mapping[str, str], call: Callable[[], int], *, path: list[str]) -> NoReturn:
    """Set up the interpreter as Python does when it starts, call `call`, and end as Python does."""
    code = 1
    try:
        _describe(argv, env)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path[:0] = [*path, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv = argv[argv.index("relay") :] if "-m" in argv[:3] else argv[2:]
        subprocess._fork_exec = _start_from_child  # type: ignore[attr-defined]
        sys.orig_argv = argv
        _open_standard()
        code = _exit_code(call)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - Python itself would print it and exit with 1
        traceback.print_exc()
    finally:
        try:
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of a program
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
        except OSError:
            code = 120  # as Python does
        finally:
            os._exit(code)


def _exit_code(call: Callable[[], int]) -> int:
    try:
        return int(call() or 0) & 0xFF
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1


def _open_standard() -> None:
    """Open standard input, output and error as Python does; a closed one is None."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            stream = None
        else:
            raw = io.FileIO(number, mode, closefd=False)
            buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
            errors = "backslashreplace" if name == "stderr" else "surrogateescape"
            stream = io.TextIOWrapper(
                buffered, "utf-8", errors, line_buffering=name == "stderr" or raw.isatty()
            )
            stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _describe(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Show `argv` and `env` in /proc as this process's own. Raise OSError if the kernel refuses."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    global _shown
    _shown = ctypes.create_string_buffer(words + variables)
    start = ctypes.addressof(_shown)
    ends = [start, start + len(words), start + len(words), start + len(words) + len(variables)]
    with open("/proc/self/stat", "rb") as file:
        stat = file.read().rpartition(b")")[2].split()  # from field 3 on, proc(5)
    code, stack, data, heap = stat[23:25], stat[25], stat[42:44], stat[44]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    places = [*map(int, (*code, *data, heap)), libc.sbrk(0), int(stack), *ends]
    table = struct.pack("11QQIi", *places, 0, 0, -1)  # struct prctl_mm_map
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, table, len(table), 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")


_shown: Any = None

if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    main(socket.socket(fileno=int(sys.argv[1])))
