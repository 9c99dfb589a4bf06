"""Places where tasks run, behind one protocol."""
