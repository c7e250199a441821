"""`python -m agent.serve.cli` runs `signalbox`."""

from agent.serve.cli import main

main()
