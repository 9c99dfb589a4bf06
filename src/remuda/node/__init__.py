"""Programs that run beside the work. Standard library only, Python 3.9+."""
