"""HDF5 files besides the stores of strips and codes."""
