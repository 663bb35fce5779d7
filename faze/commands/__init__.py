"""Commands for people, beside the stages: `faze COMMAND --help`."""
