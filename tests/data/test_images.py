import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from mnemon.core.random import stream
from mnemon.data.archives import from_npz, store
from mnemon.data.images import ImageSet, from_dataset, from_files, from_folder


@pytest.fixture
def numbered():
    """Image n has the value n everywhere, and the label n % 5."""
    values = torch.arange(100, dtype=torch.uint8)
    return ImageSet(values[:, None, None, None].expand(100, 1, 2, 3).contiguous(), torch.arange(100) % 5)


def save(path, *, size=(6, 4), colour=(10, 20, 30), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


class TestImageSet:
    def test_shapes(self, numbered):
        assert len(numbered) == 100
        assert numbered.image_shape == (1, 2, 3)
        assert numbered.num_classes == 5
        assert "100 images 1x2x3, 5 classes" in repr(numbered)
        assert ImageSet(numbered.images).num_classes == 0

    def test_subset_keeps_images_and_labels_together(self, numbered):
        part = numbered.subset([7, 3, 3])
        assert part.images[:, 0, 0, 0].tolist() == [7, 3, 3]
        assert part.labels.tolist() == [2, 3, 3]

    def test_split_off_parts_are_disjoint_random_and_whole(self, numbered):
        rest, part = numbered.split_off(0.1, seed=3)
        members = [set(x.images[:, 0, 0, 0].tolist()) for x in (rest, part)]
        assert len(rest) == 90
        assert len(part) == 10
        assert members[0] | members[1] == set(range(100))
        again, other = (numbered.split_off(0.1, seed=s)[1] for s in (3, 4))
        assert torch.equal(part.images, again.images)
        assert not torch.equal(part.images, other.images)
        assert (part.images[:, 0, 0, 0].long() % 5).equal(part.labels)

    @pytest.mark.parametrize("fraction", [0.0, 1.0, 0.001, -1])
    def test_split_off_leaves_no_empty_part(self, numbered, fraction):
        with pytest.raises(ValueError, match="both parts"):
            numbered.split_off(fraction)

    def test_of_classes(self, numbered):
        some = numbered.of_classes([4, 1])
        assert len(some) == 40
        assert set(some.labels.tolist()) == {1, 4}
        with pytest.raises(ValueError, match=r"got \[9\].*5 classes from 0 to 4"):
            numbered.of_classes([1, 9])
        with pytest.raises(ValueError, match="no labels"):
            ImageSet(numbered.images).of_classes([0])

    def test_bad_parts(self, numbered):
        with pytest.raises(ValueError, match=r"expected uint8 images \(N, C, H, W\).*float32"):
            ImageSet(numbered.images.float())
        with pytest.raises(ValueError, match="N >= 1"):
            ImageSet(numbered.images[:0])
        with pytest.raises(ValueError, match="one per image"):
            ImageSet(numbered.images, numbered.labels[1:])

    def test_to(self, numbered):
        moved = numbered.to("meta")
        assert moved.images.device.type == moved.labels.device.type == "meta"


class TestNpz:
    def test_every_layout_gives_the_same_set(self, tmp_path):
        grey = np.random.default_rng(0).integers(0, 256, (5, 6, 7), dtype=np.uint8)
        for layout in (grey, grey[:, None], grey[..., None], grey / 255, (grey / 255).astype(np.float32)):
            np.savez_compressed(tmp_path / "some.npz", images=layout, labels=np.arange(5, dtype=np.int16))
            data = from_npz(tmp_path / "some.npz", split="test")
            assert np.array_equal(data.images[:, 0], grey)
            assert data.labels.tolist() == [0, 1, 2, 3, 4]
            assert (data.name, data.split) == ("some", "test")

    def test_colour(self, tmp_path):
        colour = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)
        np.savez(tmp_path / "a.npz", images=colour)
        np.savez(tmp_path / "b.npz", images=colour.transpose(0, 3, 1, 2))
        a, b = (from_npz(tmp_path / f"{x}.npz") for x in "ab")
        assert a.image_shape == (3, 6, 7)
        assert a.labels is None
        assert a.images.equal(b.images)
        assert a.images.is_contiguous()

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"pictures": np.zeros((2, 3, 3)), "other": np.zeros(1)}, r"found the keys \['pictures', 'other'\]"),
            ({"images": np.full((2, 4, 4), 1.5)}, r"floats in \[0, 1\], got 1.5 to 1.5"),
            ({"images": np.full((2, 4, 4), np.nan)}, "got nan"),
            ({"images": np.zeros((2, 4, 4), np.int64)}, "int64; convert"),
            ({"images": np.zeros((2, 4), np.uint8)}, r"got \(2, 4\)"),
            ({"images": np.zeros((2, 4, 4, 4), np.uint8)}, "1 or 3 channels"),
            ({"images": np.zeros((2, 3, 3, 3), np.uint8)}, "1 or 3 channels"),
            ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(3, int)}, "2 whole numbers as labels"),
            ({"images": np.zeros((2, 4, 4), np.uint8), "labels": np.zeros(2)}, "2 whole numbers as labels"),
            ({"images": np.array([{}, {}], dtype=object)}, "not a whole .npz file of plain arrays"),
        ],
    )
    def test_messages(self, tmp_path, arrays, message):
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(ValueError, match=message):
            from_npz(tmp_path / "bad.npz")

    def test_bad_files(self, tmp_path):
        with pytest.raises(ValueError, match="no file"):
            from_npz(tmp_path / "none.npz")
        np.savez(tmp_path / "cut.npz", images=np.zeros((20, 9, 9), np.uint8))
        whole = (tmp_path / "cut.npz").read_bytes()
        (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=r"cut.npz is not a whole .npz"):
            from_npz(tmp_path / "cut.npz")
        np.save(tmp_path / "one.npy", np.zeros(3))
        with pytest.raises(ValueError, match="npy"):
            from_npz(tmp_path / "one.npy")


class TestGroups:
    @pytest.fixture
    def grouped(self, numbered):
        """Classes 0 to 4; the odd ones are of group 7, the even ones of group 3, class 4 of group 5."""
        return dataclasses.replace(numbered, groups=torch.tensor([3, 7, 3, 7, 5])[numbered.labels])

    def test_they_go_where_the_images_go(self, grouped):
        assert grouped.num_groups == 3
        assert "5 classes in 3 groups" in repr(grouped)
        some = grouped.subset([4, 1, 2])
        assert some.groups.tolist() == [5, 7, 3]
        assert grouped.of_classes([1, 3]).num_groups == 1
        assert grouped.to("cpu").groups.equal(grouped.groups)

    @pytest.mark.parametrize("number", [1, 2])
    def test_whole_groups_are_split_off(self, grouped, number):
        for seed in range(5):
            rest, part = grouped.split_off_groups(number, seed=seed)
            assert set(rest.groups.tolist()).isdisjoint(part.groups.tolist())
            assert (rest.num_groups, part.num_groups) == (3 - number, number)
            values = torch.cat([rest.images, part.images])[:, 0, 0, 0]
            assert values.sort().values.tolist() == list(range(100))
            assert torch.equal(part.images, grouped.split_off_groups(number, seed=seed)[1].images)
        drawn = {tuple(grouped.split_off_groups(number, seed=seed)[1].groups.unique().tolist()) for seed in range(30)}
        assert len(drawn) == 3  # every choice occurs

    def test_stored_and_read_again(self, grouped, tmp_path):
        grouped = dataclasses.replace(grouped, images=grouped.images[..., :2].contiguous())
        store(grouped, tmp_path / "some.npz")
        again = from_npz(tmp_path / "some.npz")
        for name in ("images", "labels", "groups"):
            assert torch.equal(getattr(again, name), getattr(grouped, name))
        store(dataclasses.replace(grouped, labels=None), tmp_path / "some.npz")
        assert from_npz(tmp_path / "some.npz").labels is None
        assert from_npz(tmp_path / "some.npz").num_groups == 3

    def test_messages(self, grouped, numbered, tmp_path):
        with pytest.raises(ValueError, match=r"images has none; an .npz carries them as an array `groups`"):
            numbered.split_off_groups(1)
        for number in (0, 3):
            with pytest.raises(ValueError, match=f"one of the 3 groups of images, got {number}"):
                grouped.split_off_groups(number)
        with pytest.raises(ValueError, match=r"int64 groups \(100,\), one per image, got torch.int64 \(99,\)"):
            dataclasses.replace(numbered, groups=grouped.groups[1:])
        np.savez(tmp_path / "bad.npz", images=np.zeros((2, 4, 4), np.uint8), groups=np.zeros(2))
        with pytest.raises(ValueError, match=r"2 whole numbers as groups .* got float64"):
            from_npz(tmp_path / "bad.npz")


class TestFolder:
    def test_classes_are_first_level_folders(self, tmp_path):
        save(tmp_path / "b" / "deep" / "2.png", colour=(3, 3, 3))
        save(tmp_path / "b" / "1.JPG", colour=(2, 2, 2))
        save(tmp_path / "a" / "x.bmp", colour=(1, 1, 1))
        save(tmp_path / "a" / ".hidden.png")
        (tmp_path / "a" / "notes.txt").write_text("no image")
        data = from_folder(tmp_path)
        assert data.labels.tolist() == [0, 1, 1]
        assert data.images[:, 0, 0, 0].tolist() == [1, 2, 3]
        assert data.image_shape == (3, 4, 6)
        assert data.name == tmp_path.name
        assert from_folder(tmp_path, classes=["z", "b", "a"]).labels.tolist() == [2, 1, 1]
        with pytest.raises(ValueError, match=r"got also \['b'\]"):
            from_folder(tmp_path, classes=["a"])
        save(tmp_path / "top.png")
        assert from_folder(tmp_path).labels is None

    def test_one_size_is_asked_for(self, tmp_path):
        save(tmp_path / "1.png")
        save(tmp_path / "2.png", size=(8, 4))
        with pytest.raises(ValueError, match=r"1.png is \(3, 4, 6\) and .*2.png is \(3, 4, 8\).*image_shape="):
            from_folder(tmp_path)
        assert from_folder(tmp_path, image_shape=(1, 5, 5)).images.shape == (2, 1, 5, 5)

    def test_resize_crops_the_centre_and_averages(self, tmp_path):
        pixels = np.zeros((8, 16), np.uint8)
        pixels[:, 4:12] = 200  # the centre square; the rest is cut off
        Image.fromarray(pixels).save(tmp_path / "wide.png")
        assert (from_folder(tmp_path, image_shape=(1, 2, 2)).images == 200).all()
        checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
        Image.fromarray(checks).save(tmp_path / "wide.png")
        small = from_folder(tmp_path, image_shape=(3, 8, 8)).images[0]
        assert (small.int() - 128).abs().max() <= 6  # without antialiasing it would be black and white

    def test_modes(self, tmp_path):
        Image.new("L", (3, 3), 77).save(tmp_path / "a.png")
        Image.new("1", (3, 3), 1).save(tmp_path / "b.png")
        Image.fromarray(np.full((3, 3), 77 * 257, np.uint16)).save(tmp_path / "c.png")
        Image.new("LA", (3, 3), (50, 0)).save(tmp_path / "d.png")
        assert from_folder(tmp_path).images[:, 0, 0, 0].tolist() == [77, 255, 77, 255]
        Image.new("RGBA", (3, 3), (1, 2, 3, 0)).save(tmp_path / "e.png")
        assert from_files([tmp_path / "e.png"])[0].images[0, :, 0, 0].tolist() == [255, 255, 255]
        Image.new("CMYK", (3, 3)).save(tmp_path / "f.jpg")
        assert from_folder(tmp_path, image_shape=(3, 3, 3)).images.shape == (6, 3, 3, 3)

    def test_unreadable_files_are_named_counted_and_skippable(self, tmp_path):
        for at in range(4):
            save(tmp_path / f"{at}.png", colour=(at, 0, 0))
        for at in range(7):
            (tmp_path / f"bad{at}.png").write_bytes(b"not a picture")
        whole = (tmp_path / "2.png").read_bytes()
        (tmp_path / "2.png").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ValueError, match=r"8 of 11 files.*2.png.*bad3.png.*\.\.\..*unreadable='skip'") as caught:
            from_folder(tmp_path)
        assert "bad4.png" not in str(caught.value)
        told = []
        data = from_folder(tmp_path, unreadable="skip", on_skip=told.extend)
        assert data.images[:, 0, 0, 0].tolist() == [0, 1, 3]
        assert [path.name for path in told] == ["2.png", *(f"bad{at}.png" for at in range(7))]
        with pytest.raises(ValueError, match="1 of 1 files"):
            from_files([tmp_path / "bad0.png"], unreadable="skip")

    def test_nothing_there(self, tmp_path):
        with pytest.raises(ValueError, match="no images in the folder"):
            from_folder(tmp_path)
        with pytest.raises(ValueError, match="no folder"):
            from_folder(tmp_path / "none")
        with pytest.raises(ValueError, match="no file or folder"):
            from_files([tmp_path / "none.png"])
        with pytest.raises(ValueError, match="at least one"):
            from_files([])
        with pytest.raises(ValueError, match="unreadable='error' or 'skip'"):
            from_files([tmp_path], unreadable="ignore")
        with pytest.raises(ValueError, match="image_shape"):
            from_files([tmp_path], image_shape=(2, 4, 4))

    def test_files_and_folders_in_the_order_given(self, tmp_path):
        save(tmp_path / "z.png", colour=(1, 0, 0))
        save(tmp_path / "in" / "b.png", colour=(3, 0, 0))
        save(tmp_path / "in" / "a.png", colour=(2, 0, 0))
        (tmp_path / "bad.png").write_bytes(b"")
        given = [tmp_path / "z.png", tmp_path / "bad.png", str(tmp_path / "in")]
        data, kept = from_files(given, unreadable="skip")
        assert data.images[:, 0, 0, 0].tolist() == [1, 2, 3]
        assert [path.name for path in kept] == ["z.png", "a.png", "b.png"]
        assert data.labels is None


class TestDataset:
    pixels = torch.arange(60, dtype=torch.uint8).view(5, 1, 3, 4)

    @pytest.mark.parametrize("kind", ["uint8", "float", "array", "flat", "pil"])
    def test_kinds_of_images(self, kind):
        convert = {
            "uint8": lambda x: x,
            "float": lambda x: x.float() / 255,
            "array": lambda x: x.permute(1, 2, 0).numpy(),
            "flat": lambda x: x[0],
            "pil": lambda x: Image.fromarray(x[0].numpy()),
        }[kind]
        data = from_dataset([(convert(image), at) for at, image in enumerate(self.pixels)])
        assert data.images.equal(self.pixels)
        assert data.labels.tolist() == [0, 1, 2, 3, 4]

    def test_labels_are_optional(self):
        assert from_dataset(list(self.pixels)).labels is None
        assert from_dataset(TensorDataset(self.pixels)).labels is None

    def test_datasets_and_loaders(self):
        dataset = TensorDataset(self.pixels, torch.arange(5))
        for source in (dataset, DataLoader(dataset, batch_size=2), DataLoader(list(self.pixels), batch_size=2)):
            assert from_dataset(source).images.equal(self.pixels)
            assert from_dataset(source, limit=3).images.equal(self.pixels[:3])
        assert from_dataset(DataLoader(dataset, batch_size=2)).labels.tolist() == [0, 1, 2, 3, 4]
        assert from_dataset(DataLoader(TensorDataset(self.pixels), batch_size=2)).labels is None

    @pytest.mark.parametrize(
        ("items", "message"),
        [
            ([], "empty dataset"),
            ([torch.zeros(1, 2, 2), torch.zeros(1, 2, 3)], "one size"),
            ([torch.full((1, 2, 2), -1.0)], r"got -1 to -1"),
            ([{"image": 1}], "got dict"),
            ([(torch.zeros(1, 2, 2), "seven")], "got 'seven'"),
            ([torch.zeros(4)], r"got \(4,\)"),
        ],
    )
    def test_messages(self, items, message):
        with pytest.raises(ValueError, match=message):
            from_dataset(items)


def test_the_fingerprint_tells_images_order_and_labels_apart():
    data = ImageSet(torch.arange(24, dtype=torch.uint8).view(6, 1, 2, 2), torch.arange(6))
    flipped = data.subset(torch.arange(len(data)).flip(0))
    changed = ImageSet(data.images ^ 1, data.labels)
    others = [flipped, changed, ImageSet(data.images), ImageSet(data.images, data.labels.flip(0))]
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 5
    same = flipped.subset(torch.arange(len(data)).flip(0))
    told = ImageSet(data.images, data.labels, name="another name", groups=data.labels // 3)
    assert same.fingerprint == told.fingerprint == data.fingerprint


def test_streams_are_named_by_their_numbers():
    draw = Counter(int(torch.randint(2**60, (1,), generator=stream(a, b))) for a in range(10) for b in range(10))
    assert len(draw) == 100
    assert torch.rand(3, generator=stream(1, 23)).equal(torch.rand(3, generator=stream(1, 23)))
    assert not torch.rand(3, generator=stream(1, 23)).equal(torch.rand(3, generator=stream(12, 3)))
    assert stream(5).initial_seed() < 2**63
    with pytest.raises(ValueError, match="whole numbers"):
        stream(1, 0.5)
