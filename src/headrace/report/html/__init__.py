"""The report as one page: self-contained, offline, printable, from the JSON document alone.

Belongs here: the page's template and style, its plots, and how a number on the page carries its id. Does not
belong here: reading files, and any figure that the document does not have.
"""
