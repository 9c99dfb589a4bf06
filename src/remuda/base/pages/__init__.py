"""Charts, and pages that need nothing else."""
