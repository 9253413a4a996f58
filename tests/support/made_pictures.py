"""Pictures made for tests: PNG files of stripes, without a library."""
import struct
import zlib

SIDE = 24


def png(pixels):
    """A PNG file of rows of (red, green, blue)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def picture(label, number):
    """Stripes: upright ones are of class 0, lying ones of class 1."""
    width, shift = 2 + number % 3, number * 5 % 7
    light = [200 + number % 40, 220 - number % 50, 180]
    return [[light if ((x, y)[label] + shift) // width % 2 else [20, 30, 40 + number % 30] for x in range(SIDE)]
            for y in range(SIDE)]


def write_folder(folder, count, first=0):
    """A folder for each class, with pictures number `first` and following."""
    for label, name in enumerate(("lying", "upright")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i}.png").write_bytes(png(picture(label, first + i)))
