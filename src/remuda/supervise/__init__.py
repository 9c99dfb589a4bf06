"""One supervisor for all workloads: nouns, pure decisions, the loop, explanations."""
