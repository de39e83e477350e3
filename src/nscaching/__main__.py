"""``python -m nscaching`` is the command line."""

from nscaching.cli import main

main()
