"""Carried allocations on their node: `carrier` is a part of the client."""
