"""Answers kept and written: the checkpoint, who may write it, and the output in input order."""
