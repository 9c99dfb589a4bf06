"""Commands of a fleet: of its head beside `host`, and of the machines that join."""
