"""`python -m dovetail.cli`: the command, without its script."""

from dovetail.cli.main import main

main()
