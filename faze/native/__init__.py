"""Settings for the C library, and a loader for faze's own C code."""
