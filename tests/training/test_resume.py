"""A training resumes only the same training; one that diverges stops."""

import pytest
import torch
from stage_training import Training, kill_group, wait_for, write_store

pytestmark = pytest.mark.kills


@pytest.mark.parametrize("changed", ["configuration", "strips"])
def test_another_training_does_not_resume(changed, tmp_path):
    """Regression: re-created strips with the same labels were accepted, since only labels were compared."""
    store = write_store(tmp_path / "gazecapture.h5")
    training = Training(tmp_path, store, "baseline")
    process = training.start()
    wait_for(training.work, process)
    kill_group(process)
    if changed == "configuration":
        training = Training(tmp_path, store, "baseline", head_lr=0.002)
    else:
        write_store(store, seed=1)
    assert "resumed" not in training.finish()


def test_a_loss_that_diverges_is_one_sentence(tmp_path):
    data = write_store(tmp_path / "gazecapture.h5")
    process = Training(tmp_path, data, "baseline", base_lr=1.0e18).start()
    _, words = process.communicate(timeout=120)
    assert process.returncode == 1 and "the loss is not finite after" in words and "Traceback" not in words
    assert not (tmp_path / "checkpoint.pt").exists()


def test_trainings_with_outputs_in_one_folder_are_independent(tmp_path):
    """Regression: they shared a work folder, which the first to end removed."""
    data = write_store(tmp_path / "gazecapture.h5")
    trainings = [Training(tmp_path, data, "baseline", name=name, seed=seed) for seed, name in enumerate("ab")]
    processes = [training.start() for training in trainings]
    for process in processes:
        _, words = process.communicate(timeout=240)
        assert process.returncode == 0, words
    first, second = (training.weights() for training in trainings)
    assert not torch.equal(first["fc_enc.weight"], second["fc_enc.weight"])
