"""One kind of agent: its profile, hook protocol, transcripts and hook setup."""
