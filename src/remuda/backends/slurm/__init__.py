"""Slurm as a place where tasks run."""
