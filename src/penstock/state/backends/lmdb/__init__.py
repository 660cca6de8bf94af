"""The hashmap backend: state in LMDB on each host, changelog in the shared directory."""
