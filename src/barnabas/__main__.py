"""`python -m barnabas` is `barnabas`."""

from barnabas.cli.main import main

main()
