"""Parallel work uses only the given threads: more of them would compete with each other.

Checked by breaking the code: without OPENBLAS_NUM_THREADS in a pool's environment, and without the initializer of the
adaptation's threads.
"""

import os
import threading

import torch

from faze.base.process_pool import worker_processes
from faze.fewshot import kernel
from faze.fewshot.mlp import InitialNetwork, SampleSets, map_weights, random_weights


def nothing() -> None:
    """Initialise a process of a pool."""


def test_pool_processes_use_one_blas_thread_each(monkeypatch):
    """Snakemake exports the job's number of threads to all processes that a job starts."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "8")
    with worker_processes(1, nothing) as pool:
        assert pool.submit(os.getenv, "OPENBLAS_NUM_THREADS").result() == "1"


def kernel_of_torch(weights, activation):
    return kernel.TorchKernel(*weights.hidden_weight.shape[1:], activation)


def test_adapting_threads_have_been_told_to_use_one_torch_thread_each(monkeypatch):
    """OpenMP keeps a separate thread count for each thread; asking torch for it would set it."""
    told, seen = {}, []
    monkeypatch.setattr(torch, "set_num_threads", lambda number: told.update({threading.get_ident(): number}))
    monkeypatch.setattr(kernel, "kernel_for", kernel_of_torch)
    monkeypatch.setattr(kernel.TorchKernel, "sgd_", lambda *_, **__: seen.append(threading.get_ident()))
    support = SampleSets(torch.randn(400, 9, 6), torch.randn(400, 9, 3))
    weights = random_weights(1, 6, 64, seed=0)
    network = InitialNetwork(weights, map_weights(torch.ones_like, weights), "selu")
    list(kernel.adapt(network, support, steps=[1], threads=2))
    assert len(seen) > 1
    assert threading.get_ident() not in seen
    assert {told.get(thread) for thread in seen} == {1}
