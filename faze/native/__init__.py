"""Settings of the C library, and the loading of faze's own C code."""
