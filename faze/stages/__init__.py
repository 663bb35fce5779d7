"""One thin module per rule: it parses the command line, calls other packages and writes the output.

`faze STAGE --help` prints the docstring of the stage's module.
"""
