"""The shim: the small process that owns an agent's terminal, and outlives the session."""
