"""Stand-ins for what cannot be here, or must misbehave on demand: engines, a bucket, a GPU's driver, clocks."""
