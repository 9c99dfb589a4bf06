"""From a document to a plan: what this machine and its cluster say for it, and what speaks against it.

A kind of work is one file in `kinds/`. Planning runs in a process beside the host, or in the command where none is
up; it writes and starts nothing, and does not know who asked. Begin with `planning`.
"""
