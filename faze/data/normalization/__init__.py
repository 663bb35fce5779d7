"""Normalisation of a camera frame into an eye strip and its labels (Zhang et al. 2018; FAZE section 3).

A virtual camera of fixed focal length looks at the gaze origin (the midpoint of the inner eye corners) from a fixed
distance, with its x axis aligned with the head's. R rotates the camera frame to the virtual camera's frame, and S
scales the depth of the gaze origin to the fixed distance. The strip is warped by S R; labels are rotated only by R.
"""
