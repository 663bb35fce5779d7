"""Interleaved measurements of speed, memory and energy, and the roofline peaks with which rates are compared."""
