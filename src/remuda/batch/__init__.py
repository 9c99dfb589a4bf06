"""Jobs over rows: streaming in, every row once, in order out."""
