"""Recipes of srtctl as they are: both versions and the layout before them, read into our own deployment."""
