import pytest
import torch
from small_model import MODEL

from faze.config.parameters import Loss
from faze.model.dted import DTED
from faze.model.objective import Objective

TERMS = ("reconstruction_l1", "embedding_consistency", "gaze_angle", "triplet_angular", "triplet_euclidean")
TERMS += ("all_equal", "gaze_mse")
ALL = Loss(**dict.fromkeys(TERMS, 1.0), triplet_margin=0.0, ramp_pairs=0, chunk_pairs=2)


def build(**changes: object) -> Objective:
    torch.manual_seed(0)
    return Objective(DTED(MODEL), ALL.model_copy(update=changes)).double()


def pairs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    batch = {f"image_{x}": torch.rand(4, 3, 32, 128, generator=generator) * 2 - 1 for x in "ab"}
    batch |= {f"{f}_{x}": torch.randn(4, 2, generator=generator) / 3 for f in ("gaze", "head") for x in "ab"}
    return batch | {"person": torch.tensor([0, 1, 1, 1])}


def part(batch: dict[str, torch.Tensor], where: slice) -> dict[str, torch.Tensor]:
    return {key: value[where] for key, value in batch.items()}


@pytest.mark.parametrize("name", TERMS)
def test_a_term_of_weight_zero_is_not_computed(name):
    wanted = build()(pairs())
    terms = build(**{name: 0.0})(pairs())
    assert set(terms) == set(TERMS) - {name}
    assert all(torch.equal(terms[other], wanted[other]) for other in terms)


def test_a_batch_is_the_mean_of_its_chunks_and_so_of_its_replicas():
    objective, batch = build(), pairs()
    whole = objective(batch)
    first, second = objective(part(batch, slice(0, 2))), objective(part(batch, slice(2, 4)))
    for name in TERMS:
        assert torch.allclose(whole[name], (first[name] + second[name]) / 2, rtol=1e-12), name
    assert first["triplet_angular"] > 0 == second["triplet_angular"]  # the second chunk contains one person


def test_hard_positives_are_searched_within_chunks():
    apart, together = build(chunk_pairs=2)(pairs()), build(chunk_pairs=4)(pairs())
    assert together["embedding_consistency"] > apart["embedding_consistency"]
    assert torch.equal(together["reconstruction_l1"], apart["reconstruction_l1"])


def test_gradients_are_finite_where_both_strips_are_the_same():
    objective, batch = build(), pairs()
    batch |= {"image_b": batch["image_a"], "gaze_b": batch["gaze_a"], "head_b": batch["head_a"]}
    batch["person"] = torch.arange(4)
    terms = objective(batch)
    assert float(terms["embedding_consistency"].detach()) == pytest.approx(0, abs=1e-6)
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in objective.parameters())
