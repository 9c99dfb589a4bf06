"""This machine as a place where tasks run."""
