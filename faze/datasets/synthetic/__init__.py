"""Rendered people: raw camera frames in the data sets' own layouts.

They replace the download and nothing else: the same readers, normalisation and training run on them as on real people.

    person      who somebody is: anatomy, colours, kappa, biases         setting    cameras and screens
    scene       head poses, targets, eye directions in three dimensions  annotation what of it is annotated, and the truth
    surface, skin, eyeball, lids, room, texture                          what rays see
    render      one camera frame                                         camera     the lens, both ways
    people      everybody, and one person's folder                       layouts    MPIIFaceGaze's and GazeCapture's files
    sheet       strips on one picture
"""
