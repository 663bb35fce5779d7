"""The training objective: DT-ED over pairs (a, b) of one person's strips, and its loss terms (paper section 3.1.2).

Model and losses are one module, so that each replica or process computes the losses of its own pairs.

Shapes: B pairs; P pairs per chunk.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.base.geometry import rotation_from_pitchyaw
from faze.config.parameters import Loss
from faze.model import losses
from faze.model.dted import DTED, part_of


class Objective(nn.Module):
    """The loss terms of a batch of pairs.

    Parameters that no term reaches do not require gradients; otherwise DistributedDataParallel would wait for them.

    Args:
        dted: the model.
        loss: the weights of the terms, and chunk_pairs. A term with weight 0 is not computed.
    """

    def __init__(self, dted: DTED, loss: Loss) -> None:
        super().__init__()
        self.dted = dted
        self.loss = loss
        self.angle, self.euclidean = losses.CodeAngle(), losses.CodeEuclidean()
        reached = reached_parts(loss, dted.model.backprop_gaze)
        for name, parameter in dted.named_parameters():
            parameter.requires_grad_(reached[part_of(name)])

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the unweighted terms, named like their weights in `loss`.

        Args:
            batch: `image_a`, `image_b` (B, 3, H, W) in [-1, 1]; `gaze_a`, `gaze_b`, `head_a`, `head_b` (B, 2) pitch and
                yaw in radians; `person` (B,) integers. B is a multiple of loss.chunk_pairs.

        Returns:
            Scalars in the dtype of the weights; angles in degrees.
        """
        rotations = {
            key: rotation_from_pitchyaw(batch[key].to(self.dted.dtype), torch)
            for key in ("gaze_a", "head_a", "gaze_b", "head_b")
        }
        codes_a, codes_b = self.dted.encode(torch.cat([batch["image_a"], batch["image_b"]])).halves()
        frontal_a = codes_a.turn(rotations["gaze_a"], rotations["head_a"])
        frontal_b = codes_b.turn(rotations["gaze_b"], rotations["head_b"])
        terms: dict[str, Tensor] = {}
        if self.loss.reconstruction_l1:
            codes_ab = frontal_a.turn(rotations["gaze_b"].mT, rotations["head_b"].mT)
            terms["reconstruction_l1"] = F.l1_loss(self.dted.decode(codes_ab), batch["image_b"].to(self.dted.dtype))
        terms |= self._gaze_terms(codes_a.gaze, batch["gaze_a"].to(self.dted.dtype))
        return terms | self._embedding_terms(frontal_a.gaze, frontal_b.gaze, batch["person"])

    def _gaze_terms(self, z_gaze: Tensor, gaze: Tensor) -> dict[str, Tensor]:
        """Compute the terms of the gaze head from codes (B, G, 3) and labels (B, 2)."""
        terms: dict[str, Tensor] = {}
        if self.loss.gaze_angle or self.loss.gaze_mse:
            vector = self.dted.gaze_vector(z_gaze)
            if self.loss.gaze_angle:
                terms["gaze_angle"] = losses.gaze_angle_deg(vector, gaze)
            if self.loss.gaze_mse:
                terms["gaze_mse"] = losses.gaze_mse(vector, gaze)
        return terms

    def _embedding_terms(self, frontal_a: Tensor, frontal_b: Tensor, person: Tensor) -> dict[str, Tensor]:
        """Compute the terms that compare frontalised gaze codes (B, G, 3) within chunks, averaged over chunks."""
        pairs = self.loss.chunk_pairs
        if len(person) % pairs:
            raise ValueError(
                f"{len(person)} pairs on one device are not a multiple of loss.chunk_pairs {pairs}: set "
                "train.global_batch to a multiple of devices x loss.chunk_pairs"
            )
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


def reached_parts(loss: Loss, backprop_gaze: bool) -> dict[str, bool]:
    """Return whether any term reaches each part; with backprop_gaze, the gaze terms reach the encoder."""
    gaze = bool(loss.gaze_angle or loss.gaze_mse)
    embedding = bool(loss.embedding_consistency or loss.triplet_angular or loss.triplet_euclidean or loss.all_equal)
    decoder = bool(loss.reconstruction_l1)
    return {"encoder": decoder or embedding or (gaze and backprop_gaze), "decoder": decoder, "gaze_head": gaze}
