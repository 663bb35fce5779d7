"""Helpers for all other packages: files, run logs, paths, errors and geometry. Requires only numpy, joblib and tqdm."""
