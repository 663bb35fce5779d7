"""Rendered people: raw camera frames in the data sets' own layouts.

They only replace the download: readers, normalisation and training are the same as for real people.

    person        anatomy, colours, spectacles, kappa and biases of a person, simple or with published distributions
    setting       screens and cameras, with the lens in both directions
    scene         head poses, targets and eye directions in three dimensions
    render        a frame of a scene, by rays: layers, surface, eyes, texture
    layouts       annotation, ground truth, and the files of MPIIFaceGaze and GazeCapture
    people the list of people, and each person's folder
"""
