"""Every loader reads a small set written in the set's own file format; nothing is fetched from anywhere."""

import numpy as np
import pytest
import torch
from PIL import Image

from mnemon.data import catalog, glyphs
from mnemon.data.archives import from_npz
from mnemon.data.catalog import CATALOG, describe, load
from mnemon.data.torchvision_sets import OMNIGLOT_TEST, area_average, max_pool
from tests.data.small_sets import md5, noise, write_celeba, write_cifar, write_idx, write_omniglot


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No test sees the user's own data."""
    monkeypatch.delenv("MNEMON_DATA", raising=False)
    monkeypatch.setenv("MNEMON_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


class TestTorchvisionSets:
    @pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
    def test_mnist_files(self, tmp_path, name, folder):
        parts = write_idx(tmp_path / folder / "raw")
        for split, part in (("train", "train"), ("test", "t10k")):
            data = load(name, split, root=tmp_path)
            assert np.array_equal(data.images[:, 0], parts[part][0])
            assert np.array_equal(data.labels, parts[part][1])
            assert (data.name, data.split) == (name, split)
        assert len(load(name, "all", root=tmp_path)) == 19

    def test_download(self, tmp_path, monkeypatch):
        from torchvision.datasets import MNIST

        # the archives lie where torchvision would have put them; it checks and unpacks them
        raw = tmp_path / "new" / "MNIST" / "raw"
        parts = write_idx(raw, zipped=True)
        monkeypatch.setattr(MNIST, "resources", [(name, md5(raw / name)) for name, _ in MNIST.resources])
        data = load("mnist", "test", root=tmp_path / "new", download=True)
        assert np.array_equal(data.images[:, 0], parts["t10k"][0])
        monkeypatch.setattr(MNIST, "mirrors", [f"{(tmp_path / 'gone').as_uri()}/"])
        with pytest.raises(ValueError, match=r"mnist, train cannot be fetched .*put your own at"):
            load("mnist", "train", root=tmp_path / "other", download=True)

    def test_cifar10(self, tmp_path, monkeypatch):
        entries, test = write_cifar(tmp_path, monkeypatch)
        data = load("cifar10", "train", root=tmp_path)
        expected = np.concatenate([entry["data"] for entry in entries]).reshape(-1, 3, 32, 32)
        assert np.array_equal(data.images, expected)
        assert data.labels.tolist() == [label for entry in entries for label in entry["labels"]]
        assert load("cifar10", "test", root=tmp_path).labels.tolist() == test["labels"]

    def test_omniglot(self, tmp_path, monkeypatch):
        drawn = write_omniglot(tmp_path, monkeypatch)
        data = load("omniglot", "train", root=tmp_path)
        assert data.image_shape == (1, 28, 28)
        assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
        for row, key in enumerate(sorted(key for key in drawn if key[0] < 965)):
            ink = drawn[key].astype(float) * 255
            assert abs(float(data.images[row].float().mean()) - ink.mean()) < 0.3, key
            corner = ink[:3, :3].sum() + 0.75 * (ink[3, :3].sum() + ink[:3, 3].sum()) + 0.75**2 * ink[3, 3]
            assert data.images[row, 0, 0, 0] == int(corner / 3.75**2 + 0.5)
        assert data.groups.tolist() == [1] * 6 + [0] * 6  # Alpha before Zeta
        both = load("omniglot", "all", root=tmp_path)
        assert both.num_classes == 8
        assert both.labels.max() == 7
        assert both.groups.tolist() == [1] * 6 + [0] * 6 + [3] * 6 + [2] * 6
        assert torch.equal(load("omniglot", "train", root=tmp_path).groups, data.groups)  # as stored

    def test_omniglot26(self, tmp_path, monkeypatch):
        drawn = write_omniglot(tmp_path, monkeypatch, evaluation=("Tibetan", "Alpha"))
        train, test = (load("omniglot26", split, root=tmp_path) for split in ("train", "test"))
        assert train.image_shape == test.image_shape == (1, 26, 26)
        assert train.labels.tolist() == [at // 3 for at in range(18)]  # all of background, and Alpha of evaluation
        assert train.groups.tolist() == [1] * 6 + [0] * 6 + [0] * 6
        assert test.labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert test.groups.tolist() == [0] * 6
        for row, key in enumerate(key for key in sorted(drawn) if key[0] in (965, 966)):
            for i, j in np.ndindex(26, 26):
                inked = any(drawn[key][4 * i + a, 4 * j + b] for a in range(4) for b in range(4))
                assert test.images[row, 0, i, j] == 255 * inked
        assert load("omniglot26", "all", root=tmp_path).num_groups == 3

    def test_omniglot26_without_its_test_alphabets(self, tmp_path, monkeypatch):
        write_omniglot(tmp_path, monkeypatch)
        with pytest.raises(ValueError, match=rf"expected drawings of {OMNIGLOT_TEST[0]}, .*found none"):
            load("omniglot26", "test", root=tmp_path)

    def test_celeba_whole_pictures(self, tmp_path, monkeypatch):
        write_celeba(tmp_path, monkeypatch)
        data = load("celeba64", "valid", root=tmp_path)
        assert data.image_shape == (3, 64, 64)
        assert data.images[:, :, :8].max() < 30  # the frame that the crop leaves out
        assert data.images[:, 0, 24:40, 24:40].min() > 200

    def test_imagenet32(self, tmp_path):
        folder = tmp_path / "imagenet32"
        folder.mkdir()
        with pytest.raises(ValueError, match=r"unpack Imagenet32_train_npz.zip .*put your own at"):
            load("imagenet32", "train", root=tmp_path)
        batches = {"train_data_batch_1": 5, "train_data_batch_2": 3, "val_data": 4}
        pixels = {name: noise(count, 3, 32, 32) for name, count in batches.items()}
        for name, images in pixels.items():
            labels = np.arange(1, len(images) + 1)
            np.savez(folder / f"{name}.npz", data=images.reshape(len(images), -1), labels=labels)
        train, test = (load("imagenet32", split, root=tmp_path) for split in ("train", "test"))
        assert np.array_equal(train.images, np.concatenate(list(pixels.values())[:2]))
        assert train.labels.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
        assert np.array_equal(test.images, pixels["val_data"])
        with pytest.raises(ValueError, match=r"cannot be fetched .*with an account"):
            load("imagenet32", "train", root=tmp_path / "other", download=True)

    def test_dmlab_is_what_you_bring(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot be downloaded: put your own at .*\(N, 64, 64, 3\)"):
            load("dmlab", "train", root=tmp_path)
        (tmp_path / "dmlab").mkdir()
        images = noise(6, 64, 64, 3)
        np.savez(tmp_path / "dmlab" / "train.npz", images=images)
        assert np.array_equal(load("dmlab", "train", root=tmp_path).images, images.transpose(0, 3, 1, 2))

    def test_celeba(self, tmp_path, monkeypatch):
        write_celeba(tmp_path, monkeypatch)
        train, valid, test = (load("celeba", split, root=tmp_path) for split in ("train", "valid", "test"))
        assert train.labels.tolist() == [100, 101, 102, 103, 104, 105]
        assert (len(valid), len(test)) == (3, 3)
        assert train.image_shape == (3, 32, 32)
        assert train.images[:, 0].min() > 245  # the crop alone: nothing of the black around it
        assert train.images[:, 1:].max() < 10

    def test_what_was_read_once_is_kept(self, tmp_path, monkeypatch):
        write_idx(tmp_path / "MNIST" / "raw")
        first = load("mnist", "train", root=tmp_path)
        stored = tmp_path / "mnist" / "train.npz"
        assert stored.is_file()
        assert [file.name for file in stored.parent.iterdir()] == ["train.npz"]
        monkeypatch.setattr(catalog, "_by_torchvision", None)
        again = load("mnist", "train", root=tmp_path)
        assert torch.equal(first.images, again.images)
        assert torch.equal(first.labels, again.labels)

    def test_a_read_only_root_costs_the_cache_only(self, tmp_path, monkeypatch):
        write_idx(tmp_path / "MNIST" / "raw")

        def refuse(*_):
            raise PermissionError

        monkeypatch.setattr(catalog, "store", refuse)
        assert len(load("mnist", "train", root=tmp_path)) == 12

    def test_broken_files(self, tmp_path):
        write_idx(tmp_path / "MNIST" / "raw")
        (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"cut")
        with pytest.raises(ValueError, match=r"mnist, train is not here whole .*MNIST.raw.*mnemon data get mnist"):
            load("mnist", "train", root=tmp_path)
        assert not (tmp_path / "mnist" / "train.npz").exists()


class TestAreaAverage:
    def test_whole_cells_are_plain_means(self):
        images = torch.from_numpy(noise(3, 12, 8))
        cells = images.view(3, 4, 3, 4, 2).double().mean((2, 4))
        assert torch.equal(area_average(images, 4), (cells + 0.5).floor().to(torch.uint8))

    def test_halves_are_rounded_up(self):
        images = torch.tensor([[[0, 1], [0, 1]]], dtype=torch.uint8)
        assert area_average(images, 1).item() == 1

    def test_constant_stays(self):
        assert (area_average(torch.full((1, 105, 105), 201, dtype=torch.uint8), 28) == 201).all()


class TestMaxPool:
    def test_against_loops(self):
        images = torch.from_numpy(noise(3, 11, 9))
        pooled = max_pool(images, 4)
        assert pooled.shape == (3, 2, 2)  # three rows and a column are dropped
        for n, i, j in np.ndindex(3, 2, 2):
            cell = [int(images[n, 4 * i + a, 4 * j + b]) for a in range(4) for b in range(4)]
            assert pooled[n, i, j] == max(cell)


class TestEmbedded:
    def test_digits(self):
        train, test, whole = (load("digits", split) for split in ("train", "test", "all"))
        assert (len(train), len(test), len(whole)) == (1438, 359, 1797)
        assert train.image_shape == (1, 28, 28)
        share = torch.bincount(test.labels) / torch.bincount(whole.labels)
        assert (share - 0.2).abs().max() < 0.01
        assert whole.images.min() == 0
        assert whole.images.max() == 255
        assert torch.equal(train.images, load("digits", "train").images)
        with pytest.raises(ValueError, match="no split 'valid'"):
            load("digits", "valid")

    def test_glyphs(self, monkeypatch):
        def few(split):
            number = 3 if split == "train" else 2
            return noise(number * 12, 28, 28), np.repeat(np.arange(number), 12), tuple("abc"[:number])

        monkeypatch.setattr(glyphs, "load_glyphs", few)
        train = load("glyphs", "train")
        assert train.images.shape == (36, 1, 28, 28)
        assert train.num_classes == 3
        assert load("glyphs", "all").num_classes == 5


class TestPaths:
    def test_one_file_is_divided_nine_to_one(self, tmp_path):
        np.savez(
            tmp_path / "own.npz", images=np.arange(100, dtype=np.uint8)[:, None, None] + np.zeros((2, 2), np.uint8)
        )
        train, test, whole = (load("own.npz", split) for split in ("train", "test", "all"))
        members = [set(part.images[:, 0, 0, 0].tolist()) for part in (train, test)]
        assert [len(part) for part in members] == [90, 10]
        assert members[0] | members[1] == set(range(100))
        assert len(whole) == 100
        assert (train.name, train.split, test.split, whole.split) == ("own", "train", "test", "all")
        assert torch.equal(test.images, load(tmp_path / "own.npz", "test").images)

    def test_too_few_to_divide(self, tmp_path):
        np.savez(tmp_path / "own.npz", images=noise(3, 2, 2))
        with pytest.raises(ValueError, match="has 3 images that are not divided"):
            load("own.npz", "test")
        assert len(load("own.npz", "all")) == 3

    def test_folder_of_files(self, tmp_path):
        for split, number in (("train", 5), ("test", 2)):
            (tmp_path / "own").mkdir(exist_ok=True)
            np.savez(tmp_path / "own" / f"{split}.npz", images=noise(number, 4, 4), labels=np.arange(number))
        assert [len(load("own", split)) for split in ("train", "test", "all")] == [5, 2, 7]
        with pytest.raises(ValueError, match=r"expected .*valid.npz"):
            load("own", "valid")

    def test_folders_of_pictures_number_classes_alike(self, tmp_path):
        for place in ("train/a/1.png", "train/b/1.png", "test/b/1.png", "test/c/1.png"):
            file = tmp_path / "own" / place
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise(5, 6, 3)).save(file)
        assert load("own", "train").labels.tolist() == [0, 1]
        assert load("own", "test").labels.tolist() == [1, 2]
        whole = load("own", "all", image_shape=(1, 4, 4))
        assert whole.labels.tolist() == [0, 1, 1, 2]
        assert whole.image_shape == (1, 4, 4)

    def test_plain_folder_of_pictures(self, tmp_path):
        (tmp_path / "own").mkdir()
        for at in range(20):
            Image.fromarray(noise(5, 5)).save(tmp_path / "own" / f"{at}.png")
        (tmp_path / "own" / "bad.png").write_bytes(b"")
        told = []
        assert len(load("own", "train", unreadable="skip", on_skip=told.extend)) == 18
        assert [path.name for path in told] == ["bad.png"]
        with pytest.raises(ValueError, match="1 of 21 files"):
            load("own", "train")


class TestMessages:
    def test_unknown_name(self):
        with pytest.raises(ValueError, match=r"glyphs, digits.*got 'mnits'; did you mean 'mnist'\?"):
            load("mnits", "train")
        with pytest.raises(ValueError, match="split one of train"):
            load("digits", "training")

    def test_missing_data_names_places_command_and_form(self, tmp_path):
        with pytest.raises(ValueError, match="mnist, train is not here") as caught:
            load("mnist", "train", root=tmp_path)
        for part in (tmp_path / "mnist" / "train.npz", tmp_path / "MNIST" / "raw", "images uint8 (N, 28, 28)"):
            assert str(part) in str(caught.value)
        assert f"mnemon data get mnist --root {tmp_path}" in str(caught.value)

    def test_fixed_mnist_comes_from_a_file_only(self, tmp_path):
        with pytest.raises(ValueError, match=r"cannot be downloaded: put your own at .*test.npz"):
            load("fixed_mnist", "test", root=tmp_path, download=True)
        (tmp_path / "fixed_mnist").mkdir()
        np.savez(tmp_path / "fixed_mnist" / "test.npz", images=noise(4, 28, 28))
        assert len(load("fixed_mnist", "test", root=tmp_path)) == 4

    def test_validation_split(self, tmp_path):
        with pytest.raises(ValueError, match="no validation split"):
            load("mnist", "valid", root=tmp_path)

    def test_shape_that_a_named_set_does_not_have(self):
        with pytest.raises(ValueError, match=r"expected images \(1, 8, 8\), but digits has \(1, 28, 28\)"):
            load("digits", "train", image_shape=(1, 8, 8))


def test_root_comes_from_the_environment(tmp_path, monkeypatch):
    assert catalog.data_root() == tmp_path / "cache" / "data"
    monkeypatch.setenv("MNEMON_DATA", str(tmp_path / "mine"))
    write_idx(tmp_path / "mine" / "MNIST" / "raw")
    assert len(load("mnist", "train")) == 12
    assert catalog.data_root("elsewhere").name == "elsewhere"


def test_describe(tmp_path):
    write_idx(tmp_path / "MNIST" / "raw")
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10" / "train.npz", images=noise(2, 32, 32, 3))
    records = {record["name"]: record for record in describe(tmp_path)}
    assert records.keys() == CATALOG.keys()
    assert records["digits"]["here"] == records["glyphs"]["here"] == "embedded"
    assert (records["mnist"]["here"], records["mnist"]["where"]) == ("found", str(tmp_path / "MNIST" / "raw"))
    assert (records["cifar10"]["here"], records["cifar10"]["where"]) == ("found", str(tmp_path / "cifar10"))
    assert records["omniglot"]["here"] == "missing"
    assert f"mnemon data get omniglot --root {tmp_path}" in records["omniglot"]["where"]
    assert from_npz(tmp_path / "cifar10" / "train.npz").image_shape == records["cifar10"]["image_shape"]
