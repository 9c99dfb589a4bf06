"""The host as the head of a fleet: `fleet` is what it does, `server` how nodes reach it, `routes` how commands do."""
