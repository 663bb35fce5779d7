"""Rendered people: raw camera frames in the data sets own layouts."""
