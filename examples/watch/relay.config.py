"""Watch the agent work: report errors to the team's #errors channel, and ask a silent agent for a status."""

from relay import on


@on("output")
def report_errors(output, ctx):
    if "ERROR" in output:
        ctx.notify("errors", output)


@on("message_received")
def remember_who_wrote(sender, body, ctx):
    ctx.memory.save(f"{sender} wrote: {body}")


@on("idle")  # after 30 seconds without output; `idle_seconds` in relay.toml changes that
def ask_for_a_status(event, ctx):
    if not any("STATUS" in line for line in ctx.output[-20:]):
        ctx.inject("Say in one line, beginning with STATUS, where you are.")
