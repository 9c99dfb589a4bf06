"""Benchmarks of what runs: who is measured, where points are kept, and jobs that measure."""
