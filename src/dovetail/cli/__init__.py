"""The `dovetail` command. Each subcommand imports what it needs when it runs."""
