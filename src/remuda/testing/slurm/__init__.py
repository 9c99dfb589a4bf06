"""A real Slurm of several nodes on one machine, and the drills that break it."""

from remuda.testing.slurm.bed import SlurmBed, sweep
from remuda.testing.slurm.topology import DEFAULT, NodeShape, Partition, Qos, Topology, cpu_farm

__all__ = ["DEFAULT", "NodeShape", "Partition", "Qos", "SlurmBed", "Topology", "cpu_farm", "sweep"]
