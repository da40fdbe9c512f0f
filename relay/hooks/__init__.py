"""Hooks: events of a session, the handlers that users register for them, and their results."""
