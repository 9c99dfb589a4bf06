"""The one server process: runs the loop, takes node reports, answers the HTTP API."""
