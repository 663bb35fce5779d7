"""One thin module per rule: `main` calls other packages and writes the output; its parameters are the CLI options."""
