"""The state of the agent, derived from its screen, its hooks and its status reports."""
