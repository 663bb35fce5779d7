"""Interleaved measurements of speed, memory and energy, and the roofline with which they are compared."""
