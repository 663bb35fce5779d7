"""One thin module per rule: parse the command line, call, write. `faze STAGE --help` prints its docstring."""
