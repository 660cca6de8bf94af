"""Consistent snapshots of a whole job: barriers, the cut, the coordinator, what lies on disk."""
