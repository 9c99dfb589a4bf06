"""What rows come to, and whether a point counts. Pure."""
