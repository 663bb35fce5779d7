"""Normalise a camera frame into the canonical eye strip and its labels (Zhang et al. 2018; FAZE section 3).

A virtual camera of fixed focal length looks at the gaze origin (the midpoint of the inner eye corners) from a fixed
distance, with its x axis along that of the head. R turns the camera frame into the virtual camera's; S scales the depth
of the gaze origin to the fixed distance. The strip is warped by S R; labels are rotated by R only.
"""
