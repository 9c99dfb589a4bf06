"""Practice clusters in one directory each, a real Slurm and a stand-in of Kubernetes: for `remuda try`, and for tests.

The product never imports them. `slurm/bed.py` and `kube/bed.py` are where to begin; their programs share `program`.
"""
