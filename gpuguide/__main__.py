"""`python -m gpuguide` is the command line."""

from gpuguide.cli import main

main()
