"""The bridge to agents that have hooks of their own: what they tell, and what they can be answered."""
