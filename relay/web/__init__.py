"""`relay web`: a local page with all agents, their terminals, and what they need from you."""
