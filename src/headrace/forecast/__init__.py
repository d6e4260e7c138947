"""What a server would serve: a planned one, the best of a search, or the one that a benchmark row describes.

Belongs here: memory plan, step model and load put together (`serving`, `search`); reading a row of a
published measurement, whose columns are free text by many hands, into a model, a GPU, an engine's plan and a
load; why a row cannot be judged; predictions; error statistics. It sits above `engines`, because the cap on
running requests is an engine's memory plan. Does not belong here: the physics (`perf/`), memory rules
(`engines/`), terminal or HTML (`report/`). The command is `headrace predict`: a package of that name would
hide its function.
"""
