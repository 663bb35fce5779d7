"""DT-ED computes the numbers that the released code computed with the same weights and inputs.

The numbers are in tests/golden, which every clone contains; a missing file fails the tests. Where the larger files are
available, they are compared, too: only they contain the image and float32 numbers.

Fails with tests/golden alone: an epsilon of 1.1e-5, a slope of 0.011, max pooling, codes rotated back, the median of
the gaze errors instead of the mean, a gradient with the wrong sign.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from faze.base.geometry import rotation_from_pitchyaw, vector_from_pitchyaw
from faze.config.parameters import Loss, Model
from faze.data.network_input import from_network, to_network
from faze.model import losses
from faze.model.dted import DTED
from faze.model.objective import Objective
from faze.redirection.walk import walk_rotations

SMALL = Model(
    growth=4,
    blocks=4,
    image_height_px=64,
    image_width_px=256,
    z_app=64,
    z_gaze=2,
    z_head=16,
    decoder_channels=32,
    normalize_axis=1,
    backprop_gaze=True,
)
VARIANTS = {
    "axis2": {"normalize_axis": 2},
    "axis3": {"normalize_axis": 3},
    "nonorm": {"normalize_axis": 0},
    "nobackprop": {"backprop_gaze": False},
}
Arrays = dict[str, np.ndarray]
Tensors = dict[str, Tensor]


def under(arrays: Arrays, prefix: str) -> Arrays:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def computed(arrays: Arrays, kind: str, dtype: torch.dtype) -> Arrays:
    """Return what the released code computed in this dtype, or in float64 if that is not stored."""
    return (under(arrays, f"{kind}/") if dtype == torch.float32 else {}) or under(arrays, f"{kind}64/")


def load_small(arrays: Arrays, dtype: torch.dtype, **changes: object) -> DTED:
    dted = DTED(SMALL.model_copy(update=changes))
    dted.load_state_dict({key: torch.tensor(value) for key, value in under(arrays, "sd/").items()}, strict=True)
    return dted.to(dtype)


def inputs(arrays: Arrays, dtype: torch.dtype) -> Tensors:
    tensors = {key: torch.tensor(value) for key, value in under(arrays, "in/").items()}
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in tensors.items()}


def run(dted: DTED, given: Tensors) -> tuple[Tensors, Tensors]:
    """Return the 11 outputs and 22 loss terms, keyed by their golden names.

    The released code clips cosines at 1 - 1e-6; no angle of its numbers is so small.
    """
    codes_a, codes_b = dted.encode(torch.cat([given["image_a"], given["image_b"]])).halves()
    frontal_a = codes_a.turn(given["R_gaze_a"], given["R_head_a"])
    frontal_b = codes_b.turn(given["R_gaze_b"], given["R_head_b"])
    codes_ab = frontal_a.turn(given["R_gaze_b"].mT, given["R_head_b"].mT)
    out = {
        "gaze_a_hat": dted.gaze_vector(codes_a.gaze),
        "z_app": codes_a.app,
        "z_gaze_enc": codes_a.gaze,
        "z_head_enc": codes_a.head,
        "canon_z_gaze_a": frontal_a.gaze,
        "canon_z_head_a": frontal_a.head,
        "canon_z_gaze_b": frontal_b.gaze,
        "canon_z_head_b": frontal_b.head,
        "z_gaze_dec": codes_ab.gaze,
        "z_head_dec": codes_ab.head,
        "image_b_hat": dted.decode(codes_ab),
    }
    label = vector_from_pitchyaw(given["gaze_a"], torch)
    terms = {
        "recon_l1": F.l1_loss(out["image_b_hat"], given["image_b"]),
        "gaze": losses.angle_deg(out["gaze_a_hat"], label).mean(),
        "gaze_mse": F.mse_loss(out["gaze_a_hat"], label),
    }
    for code in ("gaze", "head"):
        frontal = torch.cat([getattr(frontal_a, code), getattr(frontal_b, code)])
        terms |= embedding_terms(code, frontal, given["key_index"].repeat(2))
    terms["total"] = terms["recon_l1"] + 2 * terms["embedding_consistency_gaze_angular"] + 0.1 * terms["gaze"]
    return out, terms


def embedding_terms(code: str, frontal: Tensor, person: Tensor) -> Tensors:
    angle = losses.CodeAngle()
    terms = {f"all_equal_{code}": losses.all_equal(frontal, angle)}
    for infix, name, distance in (("", "angular", angle), ("_euc", "euclidean", losses.CodeEuclidean())):
        within = distance(frontal, losses.farthest_same(frontal, person, distance))
        between = distance(frontal, losses.nearest_other(frontal, person, distance))
        terms |= {
            f"embedding_consistency{infix}_{code}_{name}": losses.embedding_consistency(frontal, person, distance),
            f"triplet{infix}_{code}_{name}": losses.triplet(frontal, person, distance, margin=0.0),
            f"triplet{infix}_{code}_{name}_d_within": within.mean(),
            f"triplet{infix}_{code}_{name}_d_between": between.mean(),
        }
    return terms


def gradient_norms(dted: DTED) -> dict[str, float]:
    return {name: float(p.grad.norm()) for name, p in dted.named_parameters()}


def assert_scalars(found: dict[str, float] | Tensors, expected: Arrays, rtol: float) -> None:
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(float(value), expected[name], rtol=rtol, err_msg=name)


@pytest.fixture(scope="module")
def small(numbers: Callable[[str], Arrays]) -> Arrays:
    return numbers("dted_small")


@pytest.fixture(scope="module")
def variants(numbers: Callable[[str], Arrays]) -> Arrays:
    return numbers("dted_small_variants")


@pytest.fixture(scope="module")
def misc(numbers: Callable[[str], Arrays]) -> Arrays:
    return numbers("misc")


# For float32 the tolerances of the golden README; for float64 only rounding.
@pytest.mark.parametrize(
    ("dtype", "code_atol", "image_atol", "loss_rtol", "norm_rtol"),
    [(torch.float32, 5e-6, 5e-5, 5e-5, 2e-3), (torch.float64, 1e-12, 1e-11, 1e-11, 1e-9)],
)
def test_outputs_losses_and_gradients(small, dtype, code_atol, image_atol, loss_rtol, norm_rtol):
    dted = load_small(small, dtype)
    out, terms = run(dted, inputs(small, dtype))
    expected = computed(small, "out", dtype)
    assert set(expected) | {"image_b_hat"} == set(out) and len(out) == 11
    for name, value in expected.items():
        atol = image_atol if name == "image_b_hat" else code_atol
        np.testing.assert_allclose(out[name].detach(), value, rtol=0, atol=atol, err_msg=name)
    assert len(terms) == 22
    assert_scalars({k: v.detach() for k, v in terms.items()}, computed(small, "loss", dtype), loss_rtol)
    terms["total"].backward()
    assert_scalars(gradient_norms(dted), computed(small, "gradnorm", dtype), norm_rtol)


def test_gradients_element_by_element(small):
    dted = load_small(small, torch.float32)
    _, terms = run(dted, inputs(small, torch.float32))
    terms["total"].backward()
    expected = under(small, "grad/")
    for name, parameter in dted.named_parameters():
        scales = [
            np.abs(gradient).max() for gradient in (parameter.grad.numpy(), expected[name])
        ]  # stored ones have a maximum of 1
        found = parameter.grad.numpy() * (scales[1] / scales[0])
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=2e-3 * scales[1], err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(small, variants, variant):
    dted = load_small(small, torch.float32, **VARIANTS[variant])
    out, terms = run(dted, inputs(small, torch.float32))
    released = under(variants, f"{variant}/out/")
    assert released
    for name, expected in released.items():
        np.testing.assert_allclose(out[name].detach(), expected, rtol=0, atol=5e-6, err_msg=name)
    image = out["image_b_hat"].detach()
    np.testing.assert_allclose([image.mean(), image.numpy().std()], variants[f"{variant}/image_b_hat_mean_std"], 1e-4)
    assert_scalars({k: v.detach() for k, v in terms.items()}, under(variants, f"{variant}/loss/"), 5e-5)
    terms["total"].backward()
    assert_scalars(gradient_norms(dted), under(variants, f"{variant}/gradnorm/"), 2e-3)


def test_objective(small):
    """The objective used in training is tested, with one chunk of three pairs and all terms."""
    names = {
        "reconstruction_l1": "recon_l1",
        "embedding_consistency": "embedding_consistency_gaze_angular",
        "gaze_angle": "gaze",
        "triplet_angular": "triplet_gaze_angular",
        "triplet_euclidean": "triplet_euc_gaze_euclidean",
        "all_equal": "all_equal_gaze",
        "gaze_mse": "gaze_mse",
    }
    factors = dict.fromkeys(names, 1.0) | {"embedding_consistency": 2.0, "gaze_angle": 0.1}
    weights = Loss(**factors, triplet_margin=0.0, ramp_pairs=1, chunk_pairs=3)
    dted, given = load_small(small, torch.float32), inputs(small, torch.float32)
    objective = Objective(dted, weights)
    terms = objective(given | {"person": given["key_index"]})
    released = computed(small, "loss", torch.float32)
    expected = {ours: released[theirs] for ours, theirs in names.items()}
    assert_scalars({k: v.detach() for k, v in terms.items()}, expected, 5e-5)
    sum(getattr(weights, name) * terms[name] for name in list(names)[:3]).backward()
    assert_scalars(gradient_norms(dted), computed(small, "gradnorm", torch.float32), 2e-3)


@pytest.mark.parametrize(("growth", "parameters"), [(32, 6_873_465), (4, 272_521)])
def test_size(growth, parameters):
    dted = DTED(SMALL.model_copy(update={"growth": growth}))
    assert sum(p.numel() for p in dted.parameters()) == parameters
    assert len(dted.state_dict()) == len(list(dted.parameters())) == 51


def test_state_dict_is_the_published_one(small):
    ours = {key: tuple(value.shape) for key, value in DTED(SMALL).state_dict().items()}
    assert ours == {key: value.shape for key, value in under(small, "sd/").items()}


def test_equalised_input_is_bit_equal(misc):
    image = to_network(torch.tensor(misc["pre/in_uint8"]))
    assert image.dtype == torch.float32
    assert np.array_equal(image, misc["pre/out"])


def test_recovered_image_is_bit_equal(misc):
    # The released code passes its image to OpenCV, so its channels are reversed.
    assert np.array_equal(from_network(torch.tensor(misc["recover/in"])).flip(-1), misc["recover/out"])


def test_rotations_and_vectors(misc):
    pitchyaw = torch.tensor(misc["rot/pitchyaw"])
    np.testing.assert_allclose(rotation_from_pitchyaw(pitchyaw, torch), misc["rot/R"], atol=2e-7)
    np.testing.assert_allclose(vector_from_pitchyaw(pitchyaw.double(), torch), misc["rot/vector"], atol=1e-7)


@pytest.mark.parametrize(("name", "axis"), [("x_45_-45", 0), ("y_-45_45", 1)])
def test_walks_rotate_as_published(misc, name, axis):
    angles_deg, rotations = walk_rotations(axis, 45.0, 15)
    order = np.s_[::-1] if name == "x_45_-45" else np.s_[:]  # ours ascend, for both axes
    np.testing.assert_allclose(angles_deg[order], misc[f"walk/{name}/degrees"], atol=1e-5)
    np.testing.assert_allclose(rotations.numpy()[order], misc[f"walk/{name}/matrices"], atol=2e-7)
