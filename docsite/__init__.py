"""The documentation as a site and as a man page: what is generated from the code, and how Sphinx shows it.

argparse ─→ command_line ─→ manual (Markdown, a page of the site)
                        └─→ man_page (roff, docs/relay.1)
docstrings, settings ─→ json_keys, events, settings_table ─→ generated (between markers in pages)
"""
