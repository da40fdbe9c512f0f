"""How relay scales on one machine: hundreds of simulated agents, dozens of real sessions."""
