"""The state of the agent: what its screen, its hooks and its reports say, and what follows from them."""
