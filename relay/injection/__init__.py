"""Injection: text typed into the agent, sanitised and only when it is safe."""
