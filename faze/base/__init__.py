"""Files, locks, run logs, processes, result paths and geometry, for all other packages. Requires only numpy."""
