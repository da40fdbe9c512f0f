"""A namespace of your own: the agent says `@deploy:staging v1.2.3`, and gets the result.

deploy.sh, in the agent's folder, does the deployment.
"""

import asyncio

from relay import pattern


@pattern("deploy:production")
def refuse(target, message, ctx):
    # More specific than the handler below, so it runs first; `stop` keeps the other from running.
    return {"inject": f"Only a person deploys to {target}. Ask for it.", "stop": True}


@pattern("deploy")
async def deploy(target, message, ctx):
    command = await asyncio.create_subprocess_exec(
        "./deploy.sh",
        target,
        message,
        cwd=ctx.working_dir,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await command.communicate()
    if command.returncode != 0:
        return {
            "inject": f"Deploying {message} to {target} failed:\n{output.decode(errors='replace')[-2000:]}"
        }
    return {"inject": f"Deployed {message} to {target}."}
