"""The figures of a running job: collected from its parts, reported while somebody watches."""
