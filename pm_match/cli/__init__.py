"""The command line's parts: arguments, files of each kind, and what is written."""
