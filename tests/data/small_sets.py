"""Published sets in small, written in their own file formats, with random pixels."""

import gzip
import hashlib
import pickle
import struct
import zipfile

import numpy as np
from PIL import Image

RANDOM = np.random.default_rng(0)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


def noise(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def write_idx(folder, *, zipped=False):
    """MNIST's files: a magic number, the sizes, the bytes."""
    folder.mkdir(parents=True)
    parts = {}
    for part, number in (("train", 12), ("t10k", 7)):
        parts[part] = noise(number, 28, 28), noise(number) % 10
        headers = (struct.pack(">4i", 2051, number, 28, 28), struct.pack(">2i", 2049, number))
        names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        for name, header, values in zip(names, headers, parts[part], strict=True):
            content = header + values.tobytes()
            (folder / f"{name}{'.gz' if zipped else ''}").write_bytes(gzip.compress(content) if zipped else content)
    return parts


def write_cifar(root, monkeypatch):
    from torchvision.datasets import CIFAR10

    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)

    def batch(name, number):
        entry = {"data": noise(number, 3072), "labels": (noise(number) % 10).tolist()}
        (folder / name).write_bytes(pickle.dumps(entry))
        return entry, [name, md5(folder / name)]

    entries, train_list = zip(*(batch(f"data_batch_{at}", 4) for at in range(1, 6)), strict=True)
    test, test_file = batch("test_batch", 3)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr(CIFAR10, "train_list", list(train_list))
    monkeypatch.setattr(CIFAR10, "test_list", [test_file])
    monkeypatch.setattr(CIFAR10, "meta", CIFAR10.meta | {"md5": md5(folder / "batches.meta")})
    return entries, test


def write_omniglot(root, monkeypatch, evaluation=("Zeta", "Alpha")):
    """Two alphabets of two characters, three drawings each; file numbers run against the order of the names."""
    from torchvision.datasets import Omniglot

    sums, drawn = {}, {}
    parts = (("images_background", 1, ("Zeta", "Alpha")), ("images_evaluation", 965, evaluation))
    for part, number, alphabets in parts:
        for alphabet in alphabets:
            for character in ("character01", "character02"):
                folder = root / "omniglot-py" / part / alphabet / character
                folder.mkdir(parents=True)
                for drawer in range(1, 4):
                    ink = RANDOM.random((105, 105)) < 0.1
                    drawn[number, drawer] = ink
                    Image.fromarray(~ink).save(folder / f"{number:04d}_{drawer:02d}.png")
                number += 1
        archive = root / "omniglot-py" / f"{part}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("empty", "")
        sums[part] = md5(archive)
    monkeypatch.setattr(Omniglot, "zips_md5", sums)
    return drawn


def write_celeba(root, monkeypatch):
    """Twelve pictures, white where the crop is, with a black frame around it."""
    from torchvision.datasets import CelebA

    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{at:06d}.jpg" for at in range(1, 13)]
    for name in names:
        pixels = np.zeros((218, 178, 3), np.uint8)
        pixels[55:163, 35:143] = (255, 0, 0)
        Image.fromarray(pixels).save(folder / "img_align_celeba" / name, quality=100, subsampling=0)
    rows = {
        "list_eval_partition.txt": [f"{name} {at // 6 if at < 9 else 2}" for at, name in enumerate(names)],
        "identity_CelebA.txt": [f"{name} {100 + at}" for at, name in enumerate(names)],
        "list_bbox_celeba.txt": ["12", "image_id x_1 y_1 width height", *(f"{name} 1 2 3 4" for name in names)],
        "list_landmarks_align_celeba.txt": ["12", "x y", *(f"{name} 1 2" for name in names)],
        "list_attr_celeba.txt": ["12", "Bald Young", *(f"{name} -1 1" for name in names)],
    }
    for file, lines in rows.items():
        (folder / file).write_text("\n".join(lines))
    monkeypatch.setattr(CelebA, "file_list", [("id", md5(folder / file), file) for file in rows])
