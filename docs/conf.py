"""How Sphinx builds the site: `make docs`. Every warning is an error."""

project = "relay"
author = "The relay developers"
project_copyright = ""

extensions = ["myst_parser", "docsite.extension"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "relay"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {"top_of_page_buttons": []}
smartquotes = False  # "--json" is no dash
