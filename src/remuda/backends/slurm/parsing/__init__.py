"""What Slurm's commands print, as typed records and plain sentences. Pure."""
