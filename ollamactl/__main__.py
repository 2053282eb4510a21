"""`python -m ollamactl`."""

from ollamactl.cli import main

main()
