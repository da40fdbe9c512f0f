"""The documentation as a site and as a man page: what is generated from the code, and how Sphinx shows it.

argparse ─→ command_line ─→ manual ─────────────────────────┬─→ generated (Markdown, in pages of the site)
docstrings, schemas ─→ json_keys, events, settings_table, ──┴─→ man_page (roff, docs/relay.1)
                       fleet_keys
"""
