"""The discrete-event kernel: schedulers of SGLang and vLLM, advanced from event to event.

One source: compiled by numba where that is installed (and kept compiled on disk), plain Python otherwise,
with the same results to the bit. It holds no number of an engine: the rules bring them, made from
`engines/*/schedule` by `headrace.simulate.scheduling`. Nothing here walks token by token: between two events
a batch is constant and a step's time affine in the total context, so a whole stretch is summed at once.
"""
