"""What every room may use: errors, clock, units, paths, settings, secrets, logging."""
