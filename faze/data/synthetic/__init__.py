"""Rendered people: raw camera frames in the data sets' own layouts.

They replace the download and nothing else: the same readers, normalisation and training run on them as on real people.

    person        who somebody is: anatomy, colours, kappa, biases
    setting       what people look at, and through which camera they are seen (camera: the lens, both ways)
    scene         head poses, targets and eye directions in three dimensions
    render        one frame of a scene, by rays: surface, skin, eyeball, lids, room, with the tools in texture
    annotation    what of a frame is annotated, and the truth that is not
    layouts       MPIIFaceGaze's and GazeCapture's files
    people        everybody who is rendered, and each person's folder
"""
