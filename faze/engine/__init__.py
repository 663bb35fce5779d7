"""The engine: one owner per group of switches, and the step they compose."""
