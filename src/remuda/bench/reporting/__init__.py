"""Points for people and for other tools. Pure."""
