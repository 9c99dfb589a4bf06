"""The address of a swarm on a cluster: requests wait here while their router is restarted. Begin with `program`."""
