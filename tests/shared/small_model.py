"""The smallest DT-ED that has all parts."""

from faze.config.parameters import Model

MODEL = Model(
    growth=2,
    blocks=4,
    image_height_px=32,
    image_width_px=128,
    z_app=8,
    z_gaze=2,
    z_head=4,
    decoder_channels=4,
    normalize_axis=1,
    backprop_gaze=True,
)
