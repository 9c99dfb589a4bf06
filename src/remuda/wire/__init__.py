"""What nodes and host say to each other. Standard library only, Python 3.9+."""
