"""Small programs that do one thing outside of a session's process, which gives up on those that hang."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


async def run(argv: Sequence[str], text: str, seconds: float) -> str:
    """Run a program with `text` as its standard input. Return "" or, for the user, why it failed.

    The last line of its standard error says why. Kill it after `seconds`.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"{argv[0]} cannot be run: {error.strerror}"
    try:
        async with asyncio.timeout(seconds):
            _, printed = await process.communicate(text.encode(errors="replace"))
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last = printed.decode(errors="replace").strip().rpartition("\n")[2]
    return (last or f"exit code {process.returncode}") if process.returncode else ""
