"""Clusters in one directory that tests run on: a real Slurm (`remuda try slurm` starts it), and a Kubernetes stand-in."""
