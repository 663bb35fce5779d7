"""Interleaved measurement of speed, memory and energy, and the roofline that the numbers are compared with."""
