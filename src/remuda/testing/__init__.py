"""A real Slurm in one directory, which `remuda try slurm` starts and tests run on."""
