"""All HDF5 layouts of faze; no other package opens such files.

Each file has one group per person:
    strips         pixels (N, H, W, 3) uint8 RGB; labels (N, 4) gaze pitch, yaw, head pitch, yaw, rad (strips.py)
    codes          z_app (N, A); z_gaze (N, G, 3); z_head (N, D, 3); gaze, head (N, 2) rad; gaze_hat (N, 3); float32
    supplementary  the published FAZE annotation: file_name; camera_parameters (N, 4) fx fy cx cy, px;
                   distortion_parameters (N, d); head_pose (N, 6) rotation vector and mm; 3d_gaze_target (N, 3) mm
    truth          any arrays: facts from the synthetic generator that are not annotated

The released code reads our strips and codes, and we read its files, for which pixels and labels, or the codes, are
enough. The attributes `schema`, `dataset` (of the file) and `split` (of the person: train, val or test) are added by
faze.
"""
