"""Use of the machine by a worker: measured against known work, and left out where it is not known."""

import mmap
import time

import numpy as np
import pytest
import torch

from addnorm.store import StudyFolder
from addnorm.store.events import read_events
from addnorm.training.use import ResourceUse


def test_work_and_rest_are_told_apart():
    use = ResourceUse(torch.device("cpu"))
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    busy = use.read()["cpu_cores"]
    time.sleep(0.3)
    assert use.read()["cpu_cores"] < 0.5
    assert busy > 0.01, "0.1 s of processor in less than 10 s"


def test_resident_memory_holds_what_was_written():
    use = ResourceUse(torch.device("cpu"))
    before = use.read()["resident_bytes"]
    # A mapping of its own: numpy may get memory that an earlier test has written and given back, which is resident already.
    held = mmap.mmap(-1, 2**26)
    np.frombuffer(held, np.uint8)[:] = 1
    assert use.read()["resident_bytes"] - before == pytest.approx(2**26, rel=0.2)


def test_what_a_gpu_does_not_tell_is_left_out(monkeypatch):
    asked = []

    def no_nvml(device):
        asked.append(device)
        raise ModuleNotFoundError("pynvml does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2**30)
    monkeypatch.setattr(torch.cuda, "utilization", no_nvml)
    use = ResourceUse(torch.device("cuda"))
    for _ in range(2):
        found = use.read()
        assert found["gpu_bytes"] == 2**30
        assert "gpu_busy" not in found
    assert len(asked) == 1, "a missing library is looked for once"
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 87)
    assert ResourceUse(torch.device("cuda")).read()["gpu_busy"] == 0.87


def test_every_training_event_says_what_was_used(finished):
    for run in StudyFolder(finished).runs()[:2]:
        used = [event["uses"] for event in read_events(run.events_path)[0] if event["type"] == "train"]
        assert used
        for each in used:
            assert each["cpu_cores"] > 0
            assert each["resident_bytes"] > 2**26, "torch alone takes more"
            assert "gpu_bytes" not in each or torch.cuda.is_available()
