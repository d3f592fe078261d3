#!/usr/bin/env python3
"""Tests of fsdpc.prepare_images: pixels, labels and order of folders and tars. Those that decode images need Pillow."""
import importlib.util
import io
import pathlib
import sys
import tarfile
import tempfile
import unittest

import numpy

from package import ROOT
import fsdpc

sys.path.insert(0, str(ROOT / "tests"))
import accept

needs_pillow = unittest.skipUnless(importlib.util.find_spec("PIL"), "Pillow is missing")
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


class Images(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "out.safetensors"

    def save(self, name, color, size=(8, 4), edge=None):
        """An image of one colour; edge: of the columns outside the square in the middle."""
        from PIL import Image
        image = Image.new("RGB", size, edge or color)
        side = min(size)
        image.paste(color, ((size[0] - side) // 2, 0, (size[0] + side) // 2, size[1]))
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        return path

    def tar(self, name, members):
        with tarfile.open(self.folder / name, "w") as tar:
            for member, data in members:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return self.folder / name

    def colors(self):
        """Of each image, which has one colour."""
        values = accept.load_safetensors(self.out)["pixel_values"]
        numpy.testing.assert_array_equal(values, numpy.broadcast_to(values[:, :, :1, :1], values.shape))
        return values[:, :, 0, 0].tolist()

    @needs_pillow
    def test_folders_are_classes_and_the_middle_is_kept(self):
        self.save("train/dog/a.png", RED, edge=BLUE)
        self.save("train/cat/b.png", GREEN, edge=BLUE)
        self.save("train/cat/deep/a.PNG", BLUE)
        (self.folder / "train/cat/notes.txt").write_text("no image")
        self.assertEqual(fsdpc.prepare_images(self.folder / "train", self.out, 4), ["cat", "dog"])
        self.assertEqual(accept.load_safetensors(self.out)["pixel_values"].shape, (3, 3, 4, 4))
        self.assertEqual(self.colors(), [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
        self.assertEqual(accept.load_safetensors(self.out)["labels"].tolist(), [0, 0, 1])

    @needs_pillow
    def test_validation_has_the_classes_of_training(self):
        self.save("val/dog/a.png", RED)
        self.assertEqual(fsdpc.prepare_images(self.folder / "val", self.out, 2, classes=["cat", "dog"]), ["cat", "dog"])
        self.assertEqual(accept.load_safetensors(self.out)["labels"].tolist(), [1])
        with self.assertRaisesRegex(ValueError, "val/dog: is none of the classes cat, cow"):
            fsdpc.prepare_images(self.folder / "val", self.out, 2, classes=["cat", "cow"])

    @needs_pillow
    def test_normalized_by_channel_with_any_shape_and_type(self):
        self.save("train/dog/a.png", RED)
        fsdpc.prepare_images(self.folder / "train", self.out, (2, 3), mean=(0.5, 0.25, 0), std=(0.5, 1, 2), dtype="float16", name="x")
        values = accept.load_safetensors(self.out)["x"]
        self.assertEqual((values.shape, b'"dtype": "F16"' in self.out.read_bytes()), ((1, 3, 2, 3), True))
        self.assertEqual(values[0, :, 0, 0].tolist(), [1, -0.25, 0])
        fsdpc.prepare_images(self.folder / "train", self.out, 2, mode="L")
        self.assertEqual(accept.load_safetensors(self.out)["pixel_values"].shape, (1, 1, 2, 2))
        self.assertAlmostEqual(self.colors()[0][0], 0.299, places=2)

    @needs_pillow
    def test_samples_of_tars_are_in_order(self):
        red, blue = (self.save(name, color).read_bytes() for name, color in (("r.png", RED), ("b.png", BLUE)))
        one = self.tar("0.tar", [("long/1.png", red), ("long/1.json", b"{}"), ("long/1.cls", b"7\n"), ("long/2.cls", b"0"), ("long/2.png", blue)])
        two = self.tar("1.tar", [("1.img.png", blue), ("1.cls", b"3")])
        self.assertEqual(fsdpc.prepare_images([one, two], self.out, 4), [])
        self.assertEqual(self.colors(), [[1, 0, 0], [0, 0, 1], [0, 0, 1]])
        self.assertEqual(accept.load_safetensors(self.out)["labels"].tolist(), [7, 0, 3])

    @needs_pillow
    def test_cameras_that_were_turned(self):
        from PIL import Image
        image, exif = Image.new("RGB", (8, 4), RED), Image.Exif()
        image.paste(BLUE, (0, 0, 8, 2))
        exif[0x0112] = 3    # upside down
        (self.folder / "train/dog").mkdir(parents=True)
        image.save(self.folder / "train/dog/a.png", exif=exif)
        fsdpc.prepare_images(self.folder / "train", self.out, (2, 3))
        values = accept.load_safetensors(self.out)["pixel_values"].round()
        self.assertEqual(values.tolist(), [[[[1] * 3, [0] * 3], [[0] * 3, [0] * 3], [[0] * 3, [1] * 3]]])

    @needs_pillow
    def test_what_is_damaged_is_named(self):
        image = self.save("r.png", RED).read_bytes()
        for members, what in (([("1.png", image)], "a.tar: 1 has no .cls"), ([("1.cls", b"1")], "a.tar: 1 has no image"),
                              ([("1.png", image), ("1.cls", b"dog")], "a.tar: 1.cls is not a number"),
                              ([("1.png", image[:45]), ("1.cls", b"1")], "a.tar: 1: is not an image that Pillow decodes")):
            with self.subTest(what), self.assertRaisesRegex(ValueError, what):
                fsdpc.prepare_images(self.tar("a.tar", members), self.out, 4)
        (self.folder / "b.tar").write_bytes(b"noise")
        with self.assertRaisesRegex(ValueError, "b.tar: "):
            fsdpc.prepare_images(self.folder / "b.tar", self.out, 4)
        self.assertFalse(self.out.exists() or (self.folder / "out.partial").exists())

    def test_other_sources_are_refused(self):
        (self.folder / "empty").mkdir()
        with self.assertRaisesRegex(ValueError, "a.zip: a folder of class folders or a .tar is expected"):
            fsdpc.prepare_images("a.zip", self.out, 4)
        with self.assertRaisesRegex(ValueError, "the sources have no images"):
            fsdpc.prepare_images(self.folder / "empty", self.out, 4)

    def test_without_pillow_it_is_named(self):
        (self.folder / "train/dog").mkdir(parents=True)
        (self.folder / "train/dog/a.png").write_bytes(b"")
        hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "PIL"}
        sys.modules["PIL"] = None
        try:
            with self.assertRaisesRegex(ImportError, "fsdpc.prepare_images needs Pillow: pip install pillow"):
                fsdpc.prepare_images(self.folder / "train", self.out, 4)
        finally:
            del sys.modules["PIL"]
            sys.modules.update(hidden)


if __name__ == "__main__":
    unittest.main()
