"""The user's process: asks the host, waits, and follows. Every face is made of it.

It knows the host by its API alone; folders hold what belongs to one capability. No options or tables of a terminal
live here. Begin with `http`.
"""
