"""The commands `job` and `pool`."""
