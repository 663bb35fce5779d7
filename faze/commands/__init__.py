"""Commands for users, in addition to the stages: `faze COMMAND --help`."""
