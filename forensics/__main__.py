"""`python -m forensics`, the same as the command `forensics`."""

from forensics.cli.main import main

main()
