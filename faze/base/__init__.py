"""Files, locks, the run log, processes, result paths, geometry: used by every package. Needs only numpy."""
