"""Endpoints: the router seam and membership."""
