"""The comparison of redirected strips with real ones, for decoders whose results are known."""

import numpy as np
import pytest
import torch

from faze.base.geometry import rotation_from_pitchyaw
from faze.model.reconstruction import RedirectedPerson, mean_strips, redirect_person, summary

PEOPLE, STRIPS = 4, 6


@pytest.fixture
def strips():
    """Create people with one image each, from which their strips deviate less than the people differ."""
    rng = np.random.default_rng(0)
    of_person = rng.uniform(-0.5, 0.5, (PEOPLE, 1, 3, 4, 8))
    images = torch.from_numpy(of_person + rng.uniform(-0.2, 0.2, (PEOPLE, STRIPS, 3, 4, 8)))
    return images, torch.from_numpy(rng.uniform(-0.3, 0.3, (PEOPLE, STRIPS, 4)))


def evaluate(strips, redirect) -> tuple[dict[str, float], list[RedirectedPerson]]:
    def read(person):
        return strips[0][person], strips[1][person]

    means = mean_strips(PEOPLE, read)
    people = [redirect_person(redirect, read, person, means) for person in range(PEOPLE)]
    return dict(summary(people, means)), people


def test_a_perfect_decoder_is_as_good_as_real_strips(strips):
    found, people = evaluate(strips, lambda image, *_: image.roll(-1, 0))
    assert found["l1"] == 0
    assert found["spread"] == pytest.approx(found["real_spread"], rel=1e-6)
    assert found["real_right_person"] == 1 == found["right_person"]
    assert [person.strips for person in people] == [STRIPS] * PEOPLE


def test_one_mean_face_for_all_people_resembles_nobody(strips):
    mean = strips[0].mean((0, 1))
    found, _ = evaluate(strips, lambda image, *_: mean.expand_as(image))
    assert found["spread"] == 0 and found["right_person"] <= 1 / PEOPLE  # nearly all strips resemble one person
    assert found["l1"] == pytest.approx(found["all_mean_l1"], rel=1e-6)
    assert found["l1"] == pytest.approx(float((strips[0] - mean).abs().mean()), rel=1e-6)


def test_a_decoder_that_knows_only_the_person(strips):
    """The decoder returns the mean of a person's other strips; a mean including the strip itself would be nearer."""
    found, _ = evaluate(strips, lambda image, *_: (image.sum(0) - image.roll(-1, 0)) / (STRIPS - 1))
    assert found["right_person"] == 1 and found["l1"] == pytest.approx(found["own_mean_l1"], rel=1e-6)
    means = iter(strips[0].mean(1))
    found, _ = evaluate(strips, lambda image, *_: next(means).expand_as(image))
    assert found["l1"] == pytest.approx(found["own_mean_l1"] * (STRIPS - 1) / STRIPS, rel=1e-6)
    assert found["spread"] == pytest.approx(found["real_spread"], rel=1e-6)
    assert found["own_mean_l1"] < found["all_mean_l1"]


def test_strips_are_redirected_to_the_gaze_and_head_of_the_next_one(strips):
    seen = []
    evaluate(strips, lambda image, own, requested: seen.append((own, requested)) or image)
    for person, (own, requested) in enumerate(seen):
        for code, first in enumerate((0, 2)):
            true = rotation_from_pitchyaw(strips[1][person, :, first : first + 2], torch)
            assert torch.equal(own[code], true) and torch.equal(requested[code], true[[1, 2, 3, 4, 5, 0]])


def test_a_real_strip_does_not_count_in_its_own_mean():
    """With only noise, a strip is nearest to a mean that includes it, but not to its person's mean without it."""
    rng = np.random.default_rng(1)
    noise = torch.from_numpy(rng.normal(size=(20, 2, 3, 8, 16)))
    strips = noise, torch.zeros(20, 2, 4)

    def read(person):
        return strips[0][person], strips[1][person]

    means = mean_strips(20, read)
    people = [redirect_person(lambda image, *_: image, read, person, means) for person in range(20)]
    assert summary(people, means)["real_right_person"] < 0.3
    by_hand = [
        np.argmin([np.square(noise[p, i].numpy() - (noise[p, 1 - i] if q == p else noise[q].mean(0)).numpy()).sum()
                   for q in range(20)]) == p
        for p in range(20) for i in range(2)
    ]  # fmt: skip
    assert summary(people, means)["real_right_person"] == np.mean(by_hand)
