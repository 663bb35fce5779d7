"""Interleaved measurements of speed, memory and energy, and the roofline peaks for comparison."""
