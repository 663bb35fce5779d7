"""Readers: raw files of a data set -> Frame records."""
