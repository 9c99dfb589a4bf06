"""What `make test` runs: the suite, closed off from the machine, and a second look at the few tests that failed."""
