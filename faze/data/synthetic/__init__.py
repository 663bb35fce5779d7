"""Rendered people: raw camera frames in the data sets' own layouts.

They replace only the download: readers, normalisation and training are the same as for real people.

    person        anatomy, colours, kappa and biases of a person; measured_person: with published distributions
    setting       screens and cameras; camera: the lens, in both directions
    scene         head poses, targets and eye directions in three dimensions
    render        a frame of a scene, by rays: layers, surface, skin, eyeball, lids, spectacles, texture
    layouts       annotation, ground truth, and the files of MPIIFaceGaze and GazeCapture
    people        the list of people, and the folder of each
"""
