"""The subcommands of `penstock state`."""
