"""What the agent's screen and title say about its state, by the rules of its profile."""
