"""Rules between the tasks of one workload: what waits for what, fails together, takes turns. Pure."""
