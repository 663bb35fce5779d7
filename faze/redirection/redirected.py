"""Every variant of a person's redirected strips that the network makes; `faze.redirection.draws` says what each is.

Shapes: N pairs of one person; H x W pixels.
"""

from collections.abc import Mapping

import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.geometry import pitchyaw_from_vector, rotation_from_pitchyaw
from faze.model.dted import DTED, Codes
from faze.redirection.draws import MADE, Pairs, wanted_labels


@torch.inference_mode()
def redirected(dted: DTED, image: Tensor, pairs: Pairs, labels: NDArray) -> Mapping[str, Tensor]:
    """Make every variant that the network makes, of one person.

    Args:
        dted: trained network.
        image: the person's chosen strips, each of which is once a, (N, 3, H, W) in [-1, 1].
        pairs: of the person.
        labels: of these strips, (N, 4) radians.

    Returns:
        Variant -> (N, 3, H, W), about [-1, 1].
    """
    codes = dted.encode(image)
    a = torch.from_numpy(labels).to(image)
    frontal = codes.turn(rotation_from_pitchyaw(a[:, :2], torch), rotation_from_pitchyaw(a[:, 2:], torch))
    estimated = pitchyaw_from_vector(dted.gaze_vector(codes.gaze), torch)
    own = codes.turn(rotation_from_pitchyaw(estimated, torch), rotation_from_pitchyaw(a[:, 2:], torch))

    def turned(variant: str) -> Codes:
        if variant == "still":
            return codes
        wanted = torch.from_numpy(wanted_labels(variant, pairs, labels)).to(image)
        gaze, head = (rotation_from_pitchyaw(angles, torch).mT for angles in wanted.split(2, dim=1))
        return (own if variant == "own" else frontal).turn(gaze, head)

    made = [turned(variant) for variant in MADE]
    decoded = dted.decode(Codes(*map(torch.cat, zip(*made, strict=True))))
    return dict(zip(MADE, decoded.chunk(len(MADE)), strict=True))
