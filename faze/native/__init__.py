"""What faze needs of the C library and of its own C code."""
