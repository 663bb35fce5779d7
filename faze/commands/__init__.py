"""User commands, in addition to the stages; see `faze COMMAND --help`."""
