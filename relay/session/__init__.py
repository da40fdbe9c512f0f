"""A session: one agent in a pseudo-terminal, with the features that serve it."""
