"""What the driver says of GPUs, and the smoke test that uses each of them once."""
