"""Injection: text that is given to the agent, sanitised, and typed only when that is safe."""
