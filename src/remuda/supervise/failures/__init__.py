"""Why allocations ended, what that makes of their tasks, and what speaks against nodes. Pure."""
