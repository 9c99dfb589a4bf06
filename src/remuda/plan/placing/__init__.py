"""Where a workload may run: GPUs, nodes and partitions that fit. Pure."""
