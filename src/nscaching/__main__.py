"""``python -m nscaching`` is the command line."""

from nscaching.cli.main import main

main()
