"""The commands: the typed words of a command go in; the exit code of its action comes out."""
