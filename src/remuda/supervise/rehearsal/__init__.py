"""An invented cluster on invented time: failures, nodes, and the policies that live with them. Pure."""
