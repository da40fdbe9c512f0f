"""Tell an agent what ruff finds in the Python file it has just written, before its next step.

The same as hooks/linter-feedback/, as a handler: it runs in the session, so ruff is the only new process.
"""

import asyncio
import shutil

from relay import HookResult, on


@on("tool_post")
async def lint(tool_input, error, ctx):
    path = ctx.working_dir / str(tool_input.get("file_path", ""))
    if error or path.suffix != ".py" or not path.is_file():
        return None
    ruff = shutil.which("ruff", path=f"{ctx.working_dir}/.venv/bin:{ctx.env.get('PATH', '')}")
    if ruff is None:
        return HookResult(
            user_message="There is no ruff to check Python files with.", user_message_level="warning"
        )
    run = await asyncio.create_subprocess_exec(
        *(ruff, "check", "--quiet", "--no-cache", "--force-exclude", "--output-format=concise", str(path)),
        cwd=ctx.working_dir,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        found, _ = await asyncio.wait_for(run.communicate(), 7)
    except TimeoutError:
        run.kill()
        await run.wait()
        return HookResult(user_message="ruff took more than 7 seconds.", user_message_level="warning")
    if not found:
        return None
    findings = found.decode(errors="replace").splitlines()
    return HookResult(
        action="inject_context",
        context_injection="\n".join(["ruff found:", *findings[:20]]),
        context_injection_role="system",
        user_message=f"ruff found {len(findings)} problem{'s' if len(findings) > 1 else ''} in {path.name}.",
    )
