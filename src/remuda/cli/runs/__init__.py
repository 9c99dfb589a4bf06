"""The commands `run`, `gang`, `list`, `pause`, `unpause` and `set`."""
