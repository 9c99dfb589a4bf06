"""The objects of a run in its bucket: names, bytes, and the client that creates and reads them."""
