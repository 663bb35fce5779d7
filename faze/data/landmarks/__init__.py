"""Estimate head poses in frames from any camera, using landmarks that MediaPipe detects."""
