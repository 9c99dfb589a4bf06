"""What the user asks: typed, strict, frozen documents, each value with its origin."""
