"""Handlers for this project's agents. relay runs this file once you trust it: `relay trust`.

Two examples follow as comments. relay calls the first when an agent says `@deploy:staging v1.2.3` on a
separate line, the second when an agent has started.
"""

# from relay import on, pattern
#
#
# @pattern("deploy")
# async def deploy(target, message, ctx):
#     return {"inject": f"Deployed {message} to {target}."}  # the agent reads it
#
#
# @on("session_start")
# def greet(event, ctx):
#     ctx.inject("You are on call.")
