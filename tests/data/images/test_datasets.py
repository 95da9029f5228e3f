import gzip
import zipfile

import numpy as np
import pytest

from dml.data.images import datasets as module
from dml.data.images.datasets import IMAGES, images
from dml.data.images.digits import digits
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


def check(found, arrays):
    for part, pixels, classes in zip(found, arrays[::2], arrays[1::2], strict=True):
        assert part.inputs.shape == (*pixels.shape, 1)
        assert part.inputs.dtype == np.float32 and part.targets.dtype == np.int32
        assert np.array_equal(part.targets, classes)
        np.testing.assert_allclose(part.inputs[..., 0] * 255, pixels, rtol=1e-6)


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("DML_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    "form", [{}, {"pack": gzip.compress, "ending": ".gz"}, {"dot": "."}]
)
def test_a_folder_of_idx_files_is_read(form, tmp_path):
    arrays = written(tmp_path / "set", **form)
    check(images(str(tmp_path / "set")), arrays)


def test_digits_are_the_same_ones_with_axes():
    for part, flat in zip(images("digits"), digits(), strict=True):
        assert part.inputs.shape[1:] == (8, 8, 1)
        assert np.array_equal(part.inputs[3, :, :, 0].ravel(), flat.inputs[3])
        assert np.array_equal(part.targets, flat.targets)


BAD = {
    "empty": (lambda content: b"", "begins with nothing"),
    "short": (lambda content: content[:-1], r"expected 120 .* got 119; download"),
    "long": (lambda content: content + b"0", r"expected 120 .* got 121; download"),
    "cut": (lambda content: content[:9], r"begins with 00 00 08 03"),
    "axes": (lambda content: idx(np.zeros(5)), r"3 axes, .* begins with 00 00 08 01"),
    "dtype": (lambda content: b"\0\0\x0d" + content[3:], r"begins with 00 00 0d 03"),
    "huge": (lambda content: content[:4] + b"\xff" * 12, r"got 0; download"),
    "one": (lambda content: idx(np.zeros((1, 4, 6))), "got 1 and 5; pass files of one"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_idx_file_is_bad_input(name, tmp_path):
    written(tmp_path / "set")
    spoil, problem = BAD[name]
    path = tmp_path / "set/train-images-idx3-ubyte"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadInput, match=problem):
        images(str(tmp_path / "set"))


@pytest.mark.parametrize(
    "spoil", [lambda content: b"x", lambda content: gzip.compress(content)[:-12]]
)
def test_a_broken_gz_file_is_bad_input(spoil, tmp_path):
    written(tmp_path / "set", ending=".gz", pack=spoil)
    with pytest.raises(BadInput, match="expected a readable file, got .*; download"):
        images(str(tmp_path / "set"))


def test_missing_files_folders_and_images_are_bad_input(tmp_path):
    with pytest.raises(BadInput, match="in missing, got no folder; .* digits, fashion"):
        images("missing")
    written(tmp_path / "set")
    (tmp_path / "set/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(BadInput, match="expected t10k-labels.* got no such file"):
        images(str(tmp_path / "set"))
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


def test_fashion_mnist_is_found_where_debian_installs_it(tmp_path, monkeypatch):
    arrays = written(tmp_path / module.SHARE)
    here, fetched = module.FASHION_MNIST
    assert here.address == "/"
    monkeypatch.setattr(
        module, "FASHION_MNIST", (here._replace(address=str(tmp_path)), fetched)
    )
    check(images("fashion_mnist"), arrays)


def test_fashion_mnist_is_fetched_as_a_debian_package(tmp_path, monkeypatch, cached):
    arrays = written(tmp_path / "contents")
    scripts = {
        "apt-get": '[ "$1 $2" = "download dataset-fashion-mnist" ] && touch x_1.deb',
        "dpkg-deb": f'[ "$1 $2" = "-x x_1.deb" ] && mkdir -p "$3/{module.SHARE}" && '
        f'cp {tmp_path}/contents/* "$3/{module.SHARE}"',
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


def test_every_name_has_a_loader():
    assert set(IMAGES) == {"digits", "fashion_mnist", "mnist_5k"}
