"""The command line: one file per command, imported when it is called."""

__all__ = ["main"]  # a module: `main.main()` is the program
