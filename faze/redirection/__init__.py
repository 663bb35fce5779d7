"""Redirection of strips to another gaze and head pose by rotating their codes."""
