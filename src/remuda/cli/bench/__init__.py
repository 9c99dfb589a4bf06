"""The commands of `remuda bench`."""
