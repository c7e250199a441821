"""`python -m agent.serve.cli` runs `signalbox`."""

from agent.serve.cli.program import main

main()
