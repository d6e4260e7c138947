"""A table of benchmark rows: what the step model would have said of each, and how far off it is.

Belongs here: reading a row of a published measurement (whose columns are free text by many hands) into a
model, a GPU, an engine's plan and a load; saying why a row cannot be judged; predictions; error statistics.
It sits above `engines`, because a row's cap on running requests is an engine's memory plan. Does not belong
here: the physics (`perf/`), memory rules (`engines/`), terminal or HTML (`report/`).
"""
