"""Estimate head poses from landmarks that MediaPipe detects, for frames of any camera.

No test checks that MediaPipe finds faces, because faze contains no real faces.
"""

NO_FACE = "no face found"
