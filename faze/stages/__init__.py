"""One thin module per rule: it parses the command line, calls other packages and writes the output.

`faze STAGE --help` prints its docstring.
"""
