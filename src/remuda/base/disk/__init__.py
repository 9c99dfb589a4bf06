"""Files and directories of the state directory: whole or absent, private, and where they are."""
