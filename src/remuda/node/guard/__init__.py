"""Several nodes of one job: guards of a run's other nodes, and members of a replica that spans nodes."""
