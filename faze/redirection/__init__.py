"""Gaze and head pose of a strip, changed through its codes."""
