"""Recovery from failures: leases, restarts, and which snapshot an attempt starts from."""
