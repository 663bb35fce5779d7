"""Interleaved measurement of speed, memory and energy, and what the numbers are held against."""
