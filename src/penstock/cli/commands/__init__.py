"""The subcommands of `penstock`."""
