"""DT-ED for inference equals DT-ED, up to rounding."""

from collections.abc import Iterator

import pytest
import torch
from small_model import MODEL as SMALL
from torch import Tensor

from faze.config.parameters import Model
from faze.model.dted import DTED, Codes
from faze.model.inference import for_inference
from faze.native.compiled import library

PAPER = SMALL.model_copy(update={"growth": 32, "image_height_px": 64, "image_width_px": 256, "z_app": 64, "z_head": 16})
DEFAULT = SMALL.model_copy(update={"growth": 8, "z_app": 64, "z_head": 16, "decoder_channels": 32})


@pytest.fixture(autouse=True)
def compiled() -> None:
    if library("model/inference.c") is None:
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
        (SMALL.model_copy(update={"image_width_px": 96}), 2),  # an innermost map of 1 x 3: both sides odd
        (SMALL.model_copy(update={"blocks": 1, "image_height_px": 12}), 5),
        (SMALL.model_copy(update={"blocks": 3, "image_height_px": 48, "image_width_px": 80}), 2),
        (SMALL.model_copy(update={"growth": 5, "image_height_px": 96, "image_width_px": 64, "decoder_channels": 3}), 2),
    ],
    ids=["default, one", "default, odd", "paper", "small", "odd maps", "one block", "three blocks", "odd channels"],
)
def test_it_equals_dted(model, count):
    dted = build(model)
    assert_same(dted, for_inference(dted), images(model, count))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_codes_are_normalised_as_by_dted(axis):
    model = SMALL.model_copy(update={"normalize_axis": axis})
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


def test_without_the_compiled_kernel_torch_is_used(without_kernels):
    dted, image = build(SMALL), images(SMALL, 2)
    codes = for_inference(dted).encode(image)
    assert all(torch.equal(found, expected) for found, expected in zip(codes, dted.encode(image), strict=True))
