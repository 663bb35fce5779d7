"""Files, locks, the run log, processes, result paths and geometry, for every other package. Needs only numpy."""
