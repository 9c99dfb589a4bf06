"""Looking after a state directory and its cluster: database, orphans, smoke tests of nodes, import from Shepherd."""
