"""Reasons that relay gives, and that another process recognises."""

BUSY = "another text is being given to it"
"""Why a text waits while relay gives the agent another one."""

UNSENT = "there is unsent text in its input"
"""Why an idle agent with a draft in its input counts as *working*."""
