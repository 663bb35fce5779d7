"""Readers of raw data sets, which return each person's annotation as arrays (`faze.data.readers.person`)."""
