"""The moving pictures of the documentation: recorded from real sessions, drawn from the recordings.

stories/*.txt → agent.py, run by relay → record.py: docs/img/*.cast     `make record`
docs/img/*.cast → frames.py: what each screen showed → svg.py: docs/img/*.svg     `make pictures`
"""
