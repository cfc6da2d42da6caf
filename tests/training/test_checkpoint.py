import errno
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from addnorm.errors import InputError
from addnorm.store import Damaged, DiskFull
from addnorm.training import checkpoint
from addnorm.training.checkpoint import latest, load, save, save_final, save_step


def state_at(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "weights": {"a": torch.full((40, 3), float(step), dtype=torch.bfloat16), "b": torch.arange(5)},
        "rng": torch.get_rng_state(),
        "more": [1, 2.5, "text", None, True, (1, 2)],
    }


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path / "a.pt", state_at(3))
    found = load(tmp_path / "a.pt")
    expected = state_at(3)
    assert found.keys() == expected.keys()
    assert (found["step"], found["more"]) == (expected["step"], expected["more"])
    torch.testing.assert_close(found["weights"], expected["weights"], rtol=0, atol=0)
    assert torch.equal(found["rng"], expected["rng"])
    assert torch.load(tmp_path / "a.pt", weights_only=True)["step"] == 3
    assert zipfile.ZipFile(tmp_path / "a.pt").testzip() is None


def test_a_model_and_its_optimiser_go_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def make() -> tuple[torch.nn.Linear, torch.optim.AdamW]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters())

    def train(model: torch.nn.Linear, optimiser: torch.optim.AdamW) -> None:
        optimiser.zero_grad()
        model(torch.ones(3)).square().sum().backward()
        optimiser.step()

    straight, optimiser = make()
    for _ in range(4):
        train(straight, optimiser)
    half, half_optimiser = make()
    for _ in range(2):
        train(half, half_optimiser)
    save(tmp_path / "a.pt", {"model": half.state_dict(), "optimiser": half_optimiser.state_dict()})
    resumed, resumed_optimiser = make()
    found = load(tmp_path / "a.pt")
    resumed.load_state_dict(found["model"])
    resumed_optimiser.load_state_dict(found["optimiser"])
    for _ in range(2):
        train(resumed, resumed_optimiser)
    assert torch.equal(resumed.weight, straight.weight)


def test_two_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (100, 200, 300, 100_000_000):
        path = save_step(folder, step, state_at(step))
    assert names(folder) == ["step-00000300.pt", "step-100000000.pt"]
    newest = latest(folder).checkpoint
    assert newest is not None
    assert (newest.path, newest.step, newest.state["step"]) == (path, 100_000_000, 100_000_000)


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert latest(tmp_path / "no").checkpoint is None
    (tmp_path / "step-12.pt").touch()
    (tmp_path / ".step-00000100.pt.1-0.tmp").touch()
    assert latest(tmp_path) == checkpoint.Latest(checkpoint=None, rejected=())


@pytest.mark.parametrize("seed", range(24))
def test_a_changed_byte_or_a_cut_is_refused_and_the_one_before_serves(tmp_path: Path, seed: int) -> None:
    for step in (100, 200):
        save_step(tmp_path, step, state_at(step))
    path = tmp_path / "step-00000200.pt"
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    # The last bytes are the trailer, the part that a rule for the rest could forget: every fourth time it is hit there.
    place = chance.randrange(len(content) - 90 if seed % 4 == 0 else 0, len(content))
    if seed % 2:
        content[place] ^= 1 << chance.randrange(8)
    else:
        del content[place:]
    path.write_bytes(content)
    result = latest(tmp_path)
    assert result.checkpoint is not None
    assert result.checkpoint.step == 100
    (rejected,) = result.rejected
    assert rejected.path == path
    assert "step-00000200.pt is damaged" in rejected.reason


def test_no_byte_of_the_trailer_can_change_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    save(path, state_at(1))
    good = path.read_bytes()
    for place in range(len(good) - 90, len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(Damaged):
            load(path)


def test_two_damaged_ones_leave_none_and_say_so(tmp_path: Path) -> None:
    for step in (100, 200):
        (save_step(tmp_path, step, state_at(step))).write_bytes(b"")
    result = latest(tmp_path)
    assert result.checkpoint is None
    assert [rejected.path.name for rejected in result.rejected] == ["step-00000200.pt", "step-00000100.pt"]


def test_a_good_one_is_never_removed_for_a_damaged_one(tmp_path: Path) -> None:
    for step in (100, 200):
        save_step(tmp_path, step, state_at(step))
    (tmp_path / "step-00000200.pt").write_bytes(b"")
    save_step(tmp_path, 150, state_at(150))
    assert names(tmp_path) == ["step-00000100.pt", "step-00000150.pt"]


class Evil:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.witness),)


def signed(archive: bytes) -> bytes:
    """The archive with the digest that `save` would have given it: what a careful attacker sends."""
    digest = sha256(archive[:-2] + b"\0\0").hexdigest().encode()
    comment = b"addnorm sha256 " + digest
    return archive[:-2] + len(comment).to_bytes(2, "little") + comment


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_a_checkpoint_made_to_run_code_runs_nothing(tmp_path: Path, form: str) -> None:
    witness = tmp_path / "witness"
    evil = {"model": Evil(witness)}
    buffer = BytesIO()
    if form == "pickle":
        pickle.dump(evil, buffer, protocol=2)
    else:
        torch.save(evil, buffer, _use_new_zipfile_serialization=form == "zip")
    save_step(tmp_path / "c", 100, state_at(100))
    (tmp_path / "c" / "step-00000200.pt").write_bytes(signed(buffer.getvalue() + b"\0\0" * (form != "zip")))
    result = latest(tmp_path / "c")
    assert not witness.exists()
    assert result.checkpoint is not None
    assert result.checkpoint.step == 100
    assert "could run code" in result.rejected[0].reason
    # The same file does run code when it is opened without our care, so the test can fail.
    buffer.seek(0)
    torch.load(buffer, weights_only=False) if form != "pickle" else pickle.load(buffer)
    assert witness.exists()


def test_a_file_by_another_program_is_refused(tmp_path: Path) -> None:
    torch.save(state_at(1), tmp_path / "a.pt")
    with pytest.raises(Damaged, match="not written by addnorm"):
        load(tmp_path / "a.pt")
    with pytest.raises(InputError, match="no such checkpoint"):
        load(tmp_path / "b.pt")


@pytest.mark.parametrize("value", [object(), {1, 2}, torch.nn.Linear(1, 1), torch.float32])
def test_what_would_not_be_loaded_again_is_not_saved(tmp_path: Path, value: Any) -> None:
    with pytest.raises(
        InputError, match=rf"\$\.a\.b\[1\]: expected a tensor or a plain value, got {type(value).__name__}"
    ):
        save_step(tmp_path, 1, {"a": {"b": [0, value]}})
    assert names(tmp_path) == []


@pytest.mark.parametrize("after_bytes", [0, 500, 3000])
def test_a_full_disk_leaves_the_checkpoints_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_bytes: int
) -> None:
    for step in (100, 200):
        save_step(tmp_path, step, state_at(step))
    write, left = checkpoint._Hashing.write, after_bytes

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, data: Any) -> int:
            nonlocal left
            left -= len(data)
            if left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(self.file.write(data))

    def on_a_small_disk(self: Any, data: Any) -> int:
        if not isinstance(self._file, Full):
            self._file = Full(self._file)
        return write(self, data)

    monkeypatch.setattr(checkpoint._Hashing, "write", on_a_small_disk)
    with pytest.raises(DiskFull, match=r"no room left to write .*step-00000300\.pt"):
        save_step(tmp_path, 300, state_at(300))
    assert names(tmp_path) == ["step-00000100.pt", "step-00000200.pt"]
    result = latest(tmp_path)
    assert result.checkpoint is not None
    assert result.checkpoint.step == 200


KILLED = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from addnorm.training.checkpoint import save_step
print("ready", flush=True)
step = 0
while True:
    step += 1
    save_step(Path(sys.argv[1]), step, {"step": step, "a": torch.full((50_000,), float(step))})
"""


def test_kill_9_while_checkpoints_are_written_leaves_a_good_one(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    chance = random.Random(0)
    newest = 0
    for _ in range(6):
        # Stopped at a random moment the folder is as kill -9 would leave it; the process goes on for the next look.
        target = newest + chance.randrange(1, 4)
        while not (found := sorted(tmp_path.glob("step-*.pt"))) or int(found[-1].stem[5:]) < target:
            pass
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        copy = tmp_path.with_name("copy")
        shutil.copytree(tmp_path, copy)
        result = latest(copy)
        assert result.checkpoint is not None
        assert result.rejected == ()
        newest = result.checkpoint.step
        assert torch.equal(result.checkpoint.state["a"], torch.full((50_000,), float(newest)))
        shutil.rmtree(copy)
        worker.send_signal(signal.SIGCONT)
    worker.kill()
    worker.communicate()
    save_step(tmp_path, newest + 1000, state_at(1))
    assert not list(tmp_path.glob(".*"))


def test_final_weights_are_safetensors_with_tied_weights_under_each_name(tmp_path: Path) -> None:
    table = torch.nn.Embedding(4, 3)
    head = torch.nn.Linear(3, 4, bias=False)
    head.weight = table.weight
    weights = {"table": table.weight, "head": head.weight, "part": torch.arange(10).view(2, 5).T[1:3]}
    save_final(tmp_path / "final.safetensors", weights)
    found = safetensors.torch.load_file(tmp_path / "final.safetensors")
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(found[name], tensor)
    assert names(tmp_path) == ["final.safetensors"]
    with pytest.raises(InputError, match="step: expected a tensor, got int"):
        save_final(tmp_path / "final.safetensors", {"step": 3})
