"""Files, locks, the run log, processes, result paths, geometry: what every room stands on. Needs numpy alone."""
