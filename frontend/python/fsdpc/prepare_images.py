"""Folders of images and WebDataset tars to tensors that training programs read (`--train_data`); programs decode no images."""
import io
import itertools
import pathlib
import re
import tarfile

from .rows import sources_of
from .safetensors_file import SafetensorsFile

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


def prepare_images(sources, path, size, classes=None, mean=0.0, std=1.0, mode="RGB", dtype="float32", name="pixel_values"):
    """Writes images as `name` [channels, height, width] and `labels` into `path`, a .safetensors, and returns the names of the classes.

    sources: folders with a folder of images for each class; or .tar files, whose samples are KEY.jpg (or .png, ...) and KEY.cls, a
    number. A path or a list.
    classes: a label is the position in it; by default the sorted names of the class folders. Give what the training part returned
    for the other parts of a data set. Of tars, which have numbers, it is [].
    size: a number, or (height, width). An image is turned as its camera says, cropped to this shape around the middle, and resized.
    mean, std: a number, or one for each channel; pixels are divided by 255, then (x - mean) / std.
    mode: Pillow's, "RGB" or "L". dtype: in the file, "float32" or "float16".
    Needs numpy and Pillow. ValueError names the file and, in a tar, the sample."""
    import numpy
    height, width = (size, size) if isinstance(size, int) else size
    channels = {"RGB": 3, "L": 1}[mode]
    mean, std = (numpy.broadcast_to(numpy.asarray(value, "float32"), channels).reshape(-1, 1, 1) for value in (mean, std))
    sources, labels = sources_of(sources), []
    classes = list(classes or sorted({entry.name for source in sources if source.is_dir() for entry in source.iterdir() if entry.is_dir()}))
    with SafetensorsFile(path, name, dtype, (channels, height, width)) as file:
        for place, image, label in itertools.chain.from_iterable(_samples_of(source, classes) for source in sources):
            pixels = numpy.atleast_3d(_decode(place, image, (width, height), mode)).transpose(2, 0, 1)
            file.add(((pixels.astype("float32") / 255 - mean) / std)[None])
            labels.append(label)
        if not labels:
            raise ValueError(f"{path}: the sources have no images")
        file.finish({"labels": numpy.array(labels, "int64")})
    return classes


def _samples_of(source, classes):
    """(place, path or bytes of an image, label) of each sample."""
    if source.is_dir():
        return _samples_of_folder(source, classes)
    if source.suffix == ".tar":
        return _samples_of_tar(source)
    raise ValueError(f"{source}: a folder of class folders or a .tar is expected")


def _samples_of_folder(source, classes):
    labels = {name: label for label, name in enumerate(classes)}
    for folder in sorted(entry for entry in source.iterdir() if entry.is_dir()):
        if folder.name not in labels:
            raise ValueError(f"{folder}: is none of the classes {', '.join(classes)}")
        for image in sorted(folder.rglob("*")):
            if image.suffix.lower() in SUFFIXES:
                yield image, image, labels[folder.name]


def _key(entry):
    """A key ends at the first dot after the last slash."""
    folder, slash, name = entry[0].name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _members_of(source):
    """(member, file) of the regular files in a tar."""
    try:
        with tarfile.open(source) as tar:
            yield from ((member, tar.extractfile(member)) for member in tar if member.isfile())
    except tarfile.TarError as error:
        raise ValueError(f"{source}: {error}") from error


def _samples_of_tar(source):
    for key, entries in itertools.groupby(_members_of(source), _key):
        image = label = None
        for member, file in entries:
            suffix = pathlib.PurePosixPath(member.name).suffix.lower()
            if suffix in SUFFIXES:
                image = file.read()
            elif suffix == ".cls":
                label = file.read()
        if image is None or label is None:
            raise ValueError(f"{source}: {key} has no {'image' if image is None else '.cls'}")
        if not re.fullmatch(rb"\s*\d{1,9}\s*", label):
            raise ValueError(f"{source}: {key}.cls is not a number")
        yield f"{source}: {key}", io.BytesIO(image), int(label)


def _decode(place, image, size, mode):
    import numpy
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError("fsdpc.prepare_images needs Pillow: pip install pillow") from error
    try:
        with Image.open(image) as opened:
            turned = ImageOps.exif_transpose(opened).convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place}: is not an image that Pillow decodes: {error}") from error
    return numpy.asarray(ImageOps.fit(turned, size, Image.Resampling.BICUBIC))
