"""Raw camera frames of rendered people, in the data sets' own layouts.

Rendering replaces only the download: readers, normalisation and training are the same as for real people.

    person     anatomy, colours, spectacles and kappa of a person, from published distributions
    setting    screens and cameras, including lens distortion
    scene      head poses, targets and eye directions in three dimensions
    face       surfaces and colours that are painted once per person
    render     ray-traced frames of a scene; kernel calls kernel.c
    layouts    annotation, ground truth, and the files of MPIIFaceGaze and GazeCapture
    people     the list of people, and each person's folder
"""

RENDERED_MARK = "rendered_by_faze.txt"  # a file that marks a raw folder as written by `faze synthesise`
