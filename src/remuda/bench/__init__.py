"""Benchmarks of an OpenAI-compatible endpoint: loads, points, and whether a point counts.

The room knows a URL, loads, points and files. It knows no backend and no workload.
"""
