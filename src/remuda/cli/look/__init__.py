"""The commands that look: `status`, `logs`, `explain`, `events`, `nodes`, `gpus`, `profiler`."""
