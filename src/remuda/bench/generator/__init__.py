"""The load generator: requests made, sent on time, and stamped as their answers come."""
