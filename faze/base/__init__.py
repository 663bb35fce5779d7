"""Files, run logs, result paths, errors and geometry, for all other packages. Requires only numpy, joblib and tqdm."""
