"""Readers that return each person's annotation from a raw data set as arrays (`faze.data.readers.person`)."""
