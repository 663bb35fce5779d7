"""The objective compiled as one graph, within seconds, from an empty kernel cache.

The objective is the one used in training, with every term. Its network has one layer of each kind instead of 41, since
the C++ compiler takes most of the time. test_fusion (make compiled) covers the whole network and its training.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor import config
from torch.nn import functional as F
from trajectory import CONFIG, LOSS

from faze.config.parameters import Loss
from faze.engine.execution import set_compile, set_fused_norm
from faze.model.densenet import Composite
from faze.model.dted import Codes
from faze.model.objective import Objective

EVERY_TERM = LOSS.model_copy(update={"triplet_euclidean": 0.2})
DEFAULT_TERMS = CONFIG.loss.model_copy(update={"chunk_pairs": 2})
CPU = torch.device("cpu")


class OneOfEach(nn.Module):
    """A network with a convolution, a fused norm and activation, a transposed convolution, and DT-ED's codes and
    head."""

    def __init__(self) -> None:
        super().__init__()
        down = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.encoder = nn.Sequential(down, Composite(nn.Conv2d(4, 4, 3, padding=1, bias=False)))
        self.fc_enc, self.fc_dec = nn.Linear(4, 2 + 6 + 6), nn.Linear(2 + 6 + 6, 4 * 4 * 8)
        self.decoder = nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1, bias=False)
        self.gaze1, self.gaze2 = nn.Linear(6, 3), nn.Identity()
        self.model = SimpleNamespace(backprop_gaze=True)
        self.dtype = torch.float64

    def encode(self, image: Tensor) -> Codes:
        app, gaze, head = self.fc_enc(self.encoder(image).mean(dim=(2, 3))).split([2, 6, 6], dim=1)
        return Codes(app, *(F.normalize(code.reshape(len(code), -1, 3), dim=1) for code in (gaze, head)))

    def decode(self, codes: Codes) -> Tensor:
        return self.decoder(self.fc_dec(torch.cat([code.flatten(1) for code in codes], dim=1)).view(-1, 4, 4, 8))

    def gaze_vector(self, z_gaze: Tensor) -> Tensor:
        return F.normalize(self.gaze1(z_gaze.flatten(1)), dim=1)


def objective(loss: Loss) -> Objective:
    torch.manual_seed(0)
    module = Objective(OneOfEach().double(), loss)
    set_fused_norm(module, True, CPU)
    return module


def pairs() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(1)
    batch = {f"image_{one}": torch.rand(8, 3, 8, 16, generator=random, dtype=torch.float64) for one in "ab"}
    angles = ("gaze_a", "gaze_b", "head_a", "head_b")
    batch |= {name: 0.3 * torch.randn(8, 2, generator=random, dtype=torch.float64) for name in angles}
    return batch | {"person": torch.arange(8) % 3}


def terms_and_gradients(module: Objective) -> tuple[dict[str, Tensor], list[Tensor]]:
    terms = module(pairs())
    sum(getattr(module.loss, name) * term for name, term in terms.items()).backward()
    return terms, [parameter.grad for parameter in module.parameters()]


def assert_one_graph(compiled: Objective) -> None:
    """Fail if the graph breaks, or if its terms or gradients differ from the eager ones."""
    for one, other in zip(terms_and_gradients(compiled), terms_and_gradients(objective(compiled.loss)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]


@pytest.fixture(autouse=True)
def nothing_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    counters.clear()
    with config.patch({"cpp.simdlen": 1}):  # scalar kernels compile faster
        yield


@pytest.mark.compiled
def test_kernels_of_the_objective_give_the_gradient_of_the_eager_one(tmp_path: Path) -> None:
    """The default loss terms are used. Regression: a module stayed eager."""
    compiled = objective(DEFAULT_TERMS)
    assert set_compile(compiled, "default", device=CPU, replicas=1, recompute=False).active
    assert_one_graph(compiled)
    assert list(tmp_path.rglob("*.so"))  # the compiler was at work


def test_every_term_is_in_the_one_graph() -> None:
    """The graph is traced, but runs without compiled kernels. Regression: code branched on a term's value."""
    compiled = objective(EVERY_TERM)
    compiled.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    assert_one_graph(compiled)
    assert len(compiled(pairs())) == 7
