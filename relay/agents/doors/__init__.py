"""The doors of agents (relay.agents.door), one module for each shape."""
