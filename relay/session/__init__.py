"""A session: one agent under a pseudo-terminal, and everything that is done for it."""
