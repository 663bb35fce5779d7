"""One thin module per rule: parse, call, write. `faze STAGE --help`."""
