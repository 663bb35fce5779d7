"""The objective compiled as one graph. test_fusion (make compiled) covers its kernels and its training."""

import pytest
import torch
from small_model import MODEL
from torch._dynamo.utils import counters
from trajectory import LOSS

from faze.engine.execution import set_fused_norm
from faze.model.dted import DTED
from faze.model.objective import Objective


def objective() -> Objective:
    torch.manual_seed(0)
    dted = DTED(MODEL.model_copy(update={"blocks": 1})).double()
    module = Objective(dted, LOSS.model_copy(update={"triplet_euclidean": 0.2}))
    set_fused_norm(module, True, torch.device("cpu"))
    return module


def terms_and_gradients(module: Objective) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    batch = {f"image_{one}": torch.rand(8, 3, 32, 128, generator=random, dtype=torch.float64) for one in "ab"}
    angles = ("gaze_a", "gaze_b", "head_a", "head_b")
    batch |= {name: 0.3 * torch.randn(8, 2, generator=random, dtype=torch.float64) for name in angles}
    terms = module(batch | {"person": torch.arange(8) % 3})
    sum(getattr(module.loss, name) * term for name, term in terms.items()).backward()
    return terms, [parameter.grad for parameter in module.parameters()]


def test_every_term_is_in_the_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is traced, but runs without compiled kernels. Regression: code branched on a term's value."""
    monkeypatch.setattr("faze.model.densenet.LAYERS", 1)
    torch._dynamo.reset()
    counters.clear()
    compiled = objective()
    compiled.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    for one, other in zip(terms_and_gradients(compiled), terms_and_gradients(objective()), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    assert len(terms_and_gradients(compiled)[0]) == 7
