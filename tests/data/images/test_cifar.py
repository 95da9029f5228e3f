import numpy as np
import pytest

from dml.data.images.cifar import LAYOUTS
from dml.data.images.datasets import images
from dml.types import BadInput


def written(folder, form, count=2):
    """Write `count` images a file; return the classes and pixels, CIFAR's way round."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    parts = []
    for names in (form.training, form.held_out):
        total = count * len(names)
        labels = rng.integers(0, form.classes, (total, form.labels))
        pixels = rng.integers(0, 256, (total, 3, 32, 32))
        pixels[0, 0, 0, 0], pixels[0, 2, 31, 31] = 0, 255
        records = np.concatenate([labels, pixels.reshape(total, -1)], axis=1)
        for name, part in zip(names, np.split(records, len(names)), strict=True):
            part.astype(np.uint8).tofile(folder / name)
        parts.append((labels[:, -1], pixels))
    return parts


@pytest.mark.parametrize("form", LAYOUTS)
def test_a_folder_of_either_cifar_is_read_in_the_order_of_its_files(form, tmp_path):
    written_parts = written(tmp_path / "set", form)
    found = images(str(tmp_path / "set"))
    for batch, (classes, pixels) in zip(found, written_parts, strict=True):
        assert batch.inputs.dtype == np.float32 and batch.targets.dtype == np.int32
        assert np.array_equal(batch.targets, classes)
        assert batch.inputs.shape == (len(classes), 32, 32, 3)
        for colour in range(3):
            np.testing.assert_allclose(
                batch.inputs[..., colour] * 255, pixels[:, colour], atol=1e-4
            )
        assert batch.inputs.min() == 0 and batch.inputs.max() == 1


@pytest.mark.parametrize("form", LAYOUTS)
def test_a_missing_file_is_named_with_all_that_belong_to_it(form, tmp_path):
    written(tmp_path / "set", form)
    (tmp_path / "set" / form.held_out[0]).unlink()
    missing, first = form.held_out[0], form.training[0]
    problem = f"{missing}: .*got No such file.* with {first}, .*{missing}$"
    with pytest.raises(BadInput, match=problem):
        images(str(tmp_path / "set"))


SPOILS = {
    "short": (
        lambda data: data[:-1],
        "records of 3073 bytes, got 6145 bytes; download",
    ),
    "empty": (lambda data: b"", "records of 3073 bytes, got 0 bytes; download"),
    "class": (lambda data: b"\x0a" + data[1:], "classes below 10, got 10; download"),
}


@pytest.mark.parametrize("name", SPOILS)
def test_a_broken_cifar_file_is_bad_input(name, tmp_path):
    written(tmp_path / "set", LAYOUTS[0])
    spoil, problem = SPOILS[name]
    path = tmp_path / "set/data_batch_3.bin"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=f"data_batch_3.bin: expected {problem}"):
        images(str(tmp_path / "set"))


def test_a_folder_of_neither_is_told_of_both(tmp_path):
    with pytest.raises(BadInput, match="MNIST's IDX files or of CIFAR's binary files"):
        images(str(tmp_path))
