"""Injection: text given to the agent, sanitised, and typed only when typing is safe."""
