"""Who is asked next: the queue, the endpoint and request state machines, the limits. Pure: `now` comes in.

Does not belong here: sockets, clocks, disks.
"""
