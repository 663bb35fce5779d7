import contextlib

import pytest
import torch
from small_model import MODEL

from faze.base import geometry
from faze.model.dted import DTED


def strips(count: int = 2, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 3, 32, 128, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def build(**changes: object) -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL.model_copy(update=changes))


def rotations(count: int = 2, seed: int = 0) -> torch.Tensor:
    pitchyaw = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return geometry.rotation_from_pitchyaw(pitchyaw, torch)


@pytest.mark.parametrize(
    ("blocks", "height", "width"), [(4, 32, 128), (4, 64, 256), (3, 32, 128), (3, 48, 192), (1, 4, 8)]
)
def test_sizes_follow_the_model(blocks, height, width):
    dted = build(blocks=blocks, image_height_px=height, image_width_px=width)
    image = torch.rand(2, 3, height, width)
    codes = dted.encode(image)
    assert [tuple(code.shape) for code in codes] == [(2, 8), (2, 2, 3), (2, 4, 3)]
    assert dted.decode(codes).shape == image.shape
    assert dted.fc_dec.out_features == 4 * (height // 2 ** (blocks + 1)) * (width // 2 ** (blocks + 1))
    assert dted.encoder.channels == 2 * 4 * (blocks + 1)


def test_redirection_rotates_from_the_own_pose_to_the_requested_one():
    dted, image = build(), strips()
    own, wanted = (rotations(seed=1), rotations(seed=2)), (rotations(seed=3), rotations(seed=4))
    codes = dted.encode(image)
    direct = codes._replace(gaze=codes.gaze @ own[0] @ wanted[0].mT, head=codes.head @ own[1] @ wanted[1].mT)
    turned = codes.turn(*own).turn(*(rotation.mT for rotation in wanted))
    assert torch.allclose(dted.decode(turned), dted.decode(direct), atol=1e-4)


@pytest.mark.parametrize("backprop", [True, False])
def test_gaze_loss_reaches_the_encoder_only_with_backprop_gaze(backprop):
    dted = build(backprop_gaze=backprop)
    dted.gaze_vector(dted.encode(strips()).gaze).sum().backward()
    assert (dted.encoder.initial.conv1.weight.grad is not None) == backprop
    assert dted.gaze1.weight.grad is not None


def test_first_weights_are_kaiming_normal_with_zero_biases():
    state = build(growth=16).state_dict()
    fan_in = {
        "encoder.block4.compo4.conv.weight": 304 * 9,
        "encoder.trans3.composite.conv.weight": 256,
        "decoder.block4.compo4.conv.weight": 16 * 9,  # for a transposed convolution torch counts outputs
        "fc_dec.weight": 8 + 6 + 12,
    }
    for key, fan in fan_in.items():
        assert float(state[key].std()) == pytest.approx((2 / fan) ** 0.5, rel=0.1), key
        assert float(state[key].mean()) == pytest.approx(0, abs=0.1 * (2 / fan) ** 0.5), key
    assert all(not bias.any() for key, bias in state.items() if key.endswith("bias"))


def test_autocast_covers_the_network_and_nothing_else():
    entered: list[str] = []
    seen: dict[str, torch.dtype] = {}

    def autocast() -> contextlib.AbstractContextManager:
        entered.append("")
        return torch.autocast("cpu", dtype=torch.bfloat16)

    torch.manual_seed(0)
    dted = DTED(MODEL, autocast=autocast)
    parts = ("encoder", "fc_enc", "fc_dec", "decoder", "gaze1", "gaze2")
    for name in parts:
        getattr(dted, name).register_forward_hook(lambda _, __, out, name=name: seen.update({name: out.dtype}))
    codes = dted.encode(strips())
    results = [*codes, dted.decode(codes), dted.gaze_vector(codes.gaze)]
    assert seen == dict.fromkeys(parts, torch.bfloat16)
    assert len(entered) == 3
    assert all(result.dtype == torch.float32 for result in results)
    for vectors in (codes.head, results[-1]):
        norms = vectors.norm(dim=1)  # exact to float32, though the vectors themselves were rounded to bfloat16
        assert torch.allclose(norms, torch.ones_like(norms), atol=1e-6)
    assert not torch.is_autocast_enabled("cpu")
