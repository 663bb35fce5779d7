"""DT-ED for inference equals DT-ED, up to rounding.

Checked by breaking the code: a wrong sign or index in the joining of products, a product that reads another plane, a
wrong tap, kernels of transposed convolutions not flipped, odd heights rounded down, edges that are not zero, the rest
of a block omitted, means over the ends of rows or of activated maps or in another column, the last images omitted,
contiguity assumed, autocast left on, parts of the given DT-ED replaced.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest
import torch
from small_model import MODEL as SMALL
from torch import Tensor

from faze.base.compiled import library
from faze.config.parameters import Model
from faze.model.dted import DTED, Codes
from faze.model.inference import for_inference

PAPER = dataclasses.replace(SMALL, growth=32, image_height_px=64, image_width_px=256, z_app=64, z_head=16)
DEFAULT = dataclasses.replace(SMALL, growth=8, z_app=64, z_head=16, decoder_channels=32)


@pytest.fixture(autouse=True)
def compiled() -> None:
    if library("model/inference.c", "skipped") is None:
        pytest.skip("inference.c is not compiled")


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def build(model: Model, seed: int = 0) -> DTED:
    torch.manual_seed(seed)
    return DTED(model)


def images(model: Model, count: int, seed: int = 0) -> Tensor:
    size = count, 3, model.image_height_px, model.image_width_px
    return torch.rand(size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def assert_equal(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == torch.float32
    scale = expected.detach().abs().max().item()
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-5 * scale)


def assert_same(dted: DTED, fast: DTED, image: Tensor) -> None:
    codes = dted.encode(image)
    for found, expected in zip(fast.encode(image), codes, strict=True):
        assert_equal(found, expected)
    assert_equal(fast.decode(codes), dted.decode(codes))


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (DEFAULT, 1),
        (DEFAULT, 19),
        (PAPER, 3),
        (SMALL, 9),
        (dataclasses.replace(SMALL, image_width_px=96), 2),  # an innermost map of 1 x 3: both sides odd
        (dataclasses.replace(SMALL, blocks=1, image_height_px=12), 5),
        (dataclasses.replace(SMALL, blocks=3, image_height_px=48, image_width_px=80), 2),
        (dataclasses.replace(SMALL, growth=5, image_height_px=96, image_width_px=64, decoder_channels=3), 2),
    ],
    ids=["default, one", "default, odd", "paper", "small", "odd maps", "one block", "three blocks", "odd channels"],
)
def test_it_equals_dted(model, count):
    dted = build(model)
    assert_same(dted, for_inference(dted), images(model, count))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_codes_are_normalised_as_by_dted(axis):
    model = dataclasses.replace(SMALL, normalize_axis=axis)
    dted = build(model)
    assert_same(dted, for_inference(dted), images(model, 3))


def test_any_layout_of_images_codes_and_weights_is_accepted():
    dted, image = build(SMALL), images(SMALL, 4).transpose(2, 3).contiguous().transpose(2, 3)[::2]
    expected = dted.encode(image.contiguous())
    strided = Codes(*(code.repeat_interleave(2, dim=0)[::2] for code in expected))
    picture = dted.decode(expected)
    fast = for_inference(dted.to(memory_format=torch.channels_last))
    for given in (image, image.contiguous(memory_format=torch.channels_last)):
        for found, code in zip(fast.encode(given), expected, strict=True):
            assert_equal(found, code)
    assert_equal(fast.decode(strided), picture)


def test_results_depend_neither_on_other_images_nor_on_threads(threads):
    fast, image = for_inference(build(DEFAULT)), images(DEFAULT, 21)
    torch.set_num_threads(1)
    maps = torch.randn(21, *fast.innermost, generator=torch.Generator().manual_seed(1))
    features, pictures = fast.encoder(image), fast.decoder(maps)
    torch.set_num_threads(3)
    for part in (slice(None), slice(4, 7), slice(17, 19), slice(0)):
        assert torch.equal(fast.encoder(image[part]), features[part])
        assert torch.equal(fast.decoder(maps[part]), pictures[part])


def test_nan_spreads_in_its_own_image_only():
    fast, image = for_inference(build(DEFAULT)), images(DEFAULT, 5)
    whole = fast.encoder(image)
    image[2, 1, 7, 9] = torch.nan
    broken = fast.encoder(image)
    assert broken[2].isnan().all()
    assert torch.equal(broken[[0, 1, 3, 4]], whole[[0, 1, 3, 4]])


def test_autocast_is_ignored_and_the_given_dted_is_unchanged():
    torch.manual_seed(0)
    dted = DTED(SMALL, autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    before, image = dict(dted.named_modules()), images(SMALL, 2)
    fast = for_inference(dted)
    found, autocast = fast.encode(image), dted.autocast
    assert {name: id(part) for name, part in dted.named_modules()} == {name: id(part) for name, part in before.items()}
    assert dted.autocast is autocast
    dted.autocast = contextlib.nullcontext
    assert_equal(found.app, dted.encode(image).app)


def test_it_has_the_weights_at_the_time_of_the_call():
    dted, image = build(SMALL), images(SMALL, 2)
    for_inference(dted).encode(image)
    dted.load_state_dict(build(SMALL, seed=1).state_dict())
    assert_same(dted, for_inference(dted), image)


def test_float64_is_computed_by_torch():
    dted, image = build(SMALL).double(), images(SMALL, 2)
    codes = for_inference(dted).encode(image)
    assert all(torch.equal(found, expected) for found, expected in zip(codes, dted.encode(image), strict=True))


def test_without_the_compiled_kernel_torch_is_used_and_one_line_says_so(without_kernels, capsys):
    dted, image = build(SMALL), images(SMALL, 2)
    for _ in range(2):
        codes = for_inference(dted).encode(image)
    assert all(torch.equal(found, expected) for found, expected in zip(codes, dted.encode(image), strict=True))
    (line,) = capsys.readouterr().err.splitlines()
    assert "faze/model/inference.c" in line and "torch" in line
