"""The training objective: DT-ED on pairs (a, b) of one person's strips, and its loss terms (paper section 3.1.2).

The model and its losses form one module, so that each replica or process computes the losses of its own pairs.

Shapes: B pairs; P pairs per chunk.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.base.geometry import rotation_from_pitchyaw, vector_from_pitchyaw
from faze.config.parameters import Loss
from faze.model import losses
from faze.model.dted import DTED, part_of


class Objective(nn.Module):
    """The loss terms of a batch of pairs. A term whose weight in `loss` is 0 is not computed.

    Parameters that no term reaches do not require gradients; otherwise DistributedDataParallel would wait for them.
    """

    def __init__(self, dted: DTED, loss: Loss) -> None:
        super().__init__()
        self.dted = dted
        self.loss = loss
        self.angle, self.euclidean = losses.CodeAngle(), losses.CodeEuclidean()  # torch.compile cannot create them
        gaze = bool(loss.gaze_angle or loss.gaze_mse)
        embedding = any((loss.embedding_consistency, loss.triplet_angular, loss.triplet_euclidean, loss.all_equal))
        decoder = bool(loss.reconstruction_l1)
        encoder = decoder or embedding or (gaze and dted.model.backprop_gaze)
        reached = {"encoder": encoder, "decoder": decoder, "gaze_head": gaze}
        for name, parameter in dted.named_parameters():
            parameter.requires_grad_(reached[part_of(name)])

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the unweighted loss terms, which have the same names as their weights in `loss`.

        The terms are scalars in the dtype of the model's parameters; angles are in degrees. A batch has `image_a`,
        `image_b` (B, 3, H, W) in [-1, 1]; `gaze_a`, `gaze_b`, `head_a`, `head_b` (B, 2) pitch and yaw in radians;
        `person` (B,) integers. B is a multiple of loss.chunk_pairs.
        """
        loss, dted = self.loss, self.dted
        angles = [batch[name].to(dted.dtype) for name in ("gaze_a", "head_a", "gaze_b", "head_b")]
        gaze_a, head_a, gaze_b, head_b = [rotation_from_pitchyaw(each, torch) for each in angles]
        codes_a, codes_b = dted.encode(torch.cat([batch["image_a"], batch["image_b"]])).halves()
        frontal_a, frontal_b = codes_a.turn(gaze_a, head_a), codes_b.turn(gaze_b, head_b)
        terms: dict[str, Tensor] = {}
        if loss.reconstruction_l1:
            decoded = dted.decode(frontal_a.turn(gaze_b.mT, head_b.mT))
            terms["reconstruction_l1"] = F.l1_loss(decoded, batch["image_b"].to(dted.dtype))
        if loss.gaze_angle or loss.gaze_mse:
            found, label = dted.gaze_vector(codes_a.gaze), vector_from_pitchyaw(angles[0], torch)
            if loss.gaze_angle:
                terms["gaze_angle"] = losses.angle_deg(found, label).mean()
            if loss.gaze_mse:
                terms["gaze_mse"] = F.mse_loss(found, label)
        return terms | self._embedding_terms(frontal_a.gaze, frontal_b.gaze, batch["person"])

    def _embedding_terms(self, frontal_a: Tensor, frontal_b: Tensor, person: Tensor) -> dict[str, Tensor]:
        """Compute the loss terms that compare frontalised gaze codes (B, G, 3) within chunks, averaged over chunks."""
        pairs = self.loss.chunk_pairs
        # (B, G, 3) twice -> (B / P, 2 P, G, 3)
        codes = torch.cat([code.unflatten(0, (-1, pairs)) for code in (frontal_a, frontal_b)], dim=1)
        person = person.unflatten(0, (-1, pairs)).repeat(1, 2)
        angle, euclidean, margin = self.angle, self.euclidean, self.loss.triplet_margin
        terms = {
            "embedding_consistency": lambda: losses.embedding_consistency(codes, person, angle),
            "triplet_angular": lambda: losses.triplet(codes, person, angle, margin),
            "triplet_euclidean": lambda: losses.triplet(codes, person, euclidean, margin),
            "all_equal": lambda: losses.all_equal(codes, angle),
        }
        return {name: term() for name, term in terms.items() if getattr(self.loss, name)}
