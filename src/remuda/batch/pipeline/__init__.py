"""From rows to answers: many requests in flight, bounded, paced, and repeated where it helps."""
