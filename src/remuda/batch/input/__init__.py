"""Rows in: files found, read as a stream, and told apart from what an earlier run has answered."""
