"""Pure policies: backoff, restart, health. Standard library only, Python 3.9+."""
