"""From a spec to a workload: pure."""
