"""The `relay` command: `wrap`, `hook` and `--version` directly, the others through argparse.

Loading argparse takes 20 ms, which would delay the agent's first byte and every hook.
"""

from __future__ import annotations

import gc
import io
import os
import sys

_HIDDEN = ("--broker", "--supervision", "--task")  # relay.cli.hidden.OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Buffer


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: sys.argv[1:]) and return its exit code."""
    if argv is None:
        _use_utf8()
        argv = sys.argv[1:]
    try:
        from relay.errors import RelayError

        try:
            try:
                if any(word.startswith(_HIDDEN) for word in argv):
                    from relay.cli.hidden import hide

                    hide(argv)
                return _command(argv)
            except FileNotFoundError:
                from relay.project import current

                current()
                raise
        except RelayError as error:
            print(f"relay: {error}", file=sys.stderr)
            return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; Python's flush at exit would complain again
        return 141
    except OutputFailed as error:
        sys.stdout = None
        print(f"relay: cannot write to the standard output: {error.strerror}.", file=sys.stderr)
        return 1


def _use_utf8() -> None:
    """Start again in UTF-8 mode (PEP 540) if paths could only be ASCII: the C locale, with PYTHONUTF8=0."""
    if sys.getfilesystemencoding() == "ascii":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


class OutputFailed(OSError):
    """Writing to standard output failed: the disk is full, or the output is closed."""


class _Output(io.FileIO):
    """Standard output; write errors raise OutputFailed, to tell them from those of other files."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from None


def _command(argv: list[str]) -> int:
    if argv[:1] == ["wrap"] and not {"-h", "--help"} & set(argv[1:2]):
        from relay.cli import wrap

        return wrap.quick(argv[1:])
    if argv[:1] == ["hook"] and not {"-h", "--help"} & set(argv[1:]):
        from relay.cli import hook

        return hook.quick(argv[1:])
    if argv == ["mcp"]:
        from relay.cli import mcp

        return mcp.quick()
    _prepare_streams()
    gc.disable()  # while modules load: a twentieth of a command
    try:
        if argv[:1] in (["-V"], ["--version"]):
            from relay.version import VERSION

            print(f"relay {VERSION}")
            return 0
        if argv[:1] == ["__complete"]:  # as a shell asks (relay.cli.completion)
            from relay.cli.command_line import complete

            print(*complete(argv[1:]), sep="\n")
            return 0
        from relay.cli.main import dispatch

        return dispatch(argv)
    finally:
        gc.enable()
        sys.stdout.flush()  # a failure at exit could not be reported; argparse exits after printing help


def _prepare_streams() -> None:
    """Make sure that printing works, or fails in a way that `main` reports, and that reading works."""
    for fd, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:  # the caller closed it; the next file opened would get its number
            # `fd` is the lowest free number. Open it read-only: printing then fails and is reported.
            os.open(os.devnull, os.O_WRONLY if fd == 2 else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    before = sys.stdout
    if before is not None and before is not sys.__stdout__:
        return  # replaced by a test, or by a program that calls us
    errors = "strict" if before is None else before.errors
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(1, "w", closefd=False)),
        encoding=None if before is None else before.encoding,
        errors="replace" if errors == "strict" else errors,  # one lost character is better than no output
        line_buffering=before is not None and before.isatty(),
    )
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)


if __name__ == "__main__":
    sys.exit(main())
