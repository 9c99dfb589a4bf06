"""Recordings of GPUs: begun, ended and read in the user's process."""
