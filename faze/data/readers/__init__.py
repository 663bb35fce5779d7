"""Readers of raw data sets: each person's annotation as arrays (`faze.data.readers.person`)."""
