"""One kind of agent: its profile, hook protocol, transcripts, and the set-up of its hooks."""
