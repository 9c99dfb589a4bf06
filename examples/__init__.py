"""Examples that run as they are; the tests use them."""
