"""The `relay` command: straight to `wrap` and `attach`, by way of the whole command line to the rest.

Loading argparse and every command's module costs 20 ms, which the agent's first byte would wait for.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: sys.argv[1:]); the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    from relay.errors import RelayError

    try:
        if argv[:1] == ["wrap"] and not {"-h", "--help"} & set(argv[1:2]):
            from relay.cli import wrap

            return wrap.quick(argv[1:])
        from relay.cli.main import dispatch

        return dispatch(argv)
    except RelayError as error:
        print(f"relay: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it flushes at exit.
        sys.stdout = None
        return 141


if __name__ == "__main__":
    sys.exit(main())
