"""The state of the agent, as its screen, its hooks and its status reports show it."""
