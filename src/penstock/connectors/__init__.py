"""Where records come from and where they go: the contracts and the built-in connectors."""
