"""The commands that start and stop what serves: `up`, `down`, `scale`, `apply`, `swarm`."""
