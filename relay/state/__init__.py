"""The agent's state, derived from its screen, its hooks and its status reports."""
