"""The use cases that every face calls, and the Python API."""
