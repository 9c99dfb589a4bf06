"""Batch jobs and scripts in the user's process: their targets, drivers and pools."""
