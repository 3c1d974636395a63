"""Feeds the same mutated files to gpuwm and to the reference, the Python package safetensors, and compares the verdicts.

    safetensors_reference.py VERDICT_PROGRAM [ITERATIONS [SEED]]

A file that gpuwm takes and the reference refuses is a failure. What gpuwm alone refuses is counted: gpuwm refuses keys that are
there twice, integers above 2^63 - 1, and what no index of gpuwm holds. The same seed gives the same files.
"""

import random
import struct
import subprocess
import sys
from collections import Counter

import safetensors

BATCH = 500
SHOWN = 5  # of the files that fail


def tensor(dtype="U8", shape="[4]", offsets="[0,4]", more=""):
    return '{"dtype":"%s","shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more)


def ignored(value):
    """A tensor with a field that no reader needs."""
    return '{"a":%s}' % tensor(more=',"more":' + value), 4


def nested(depth, opening="[", closing="]"):
    """The object, the tensor and the field take 2 levels, so that 125 more are the last ones that are taken."""
    return ignored(opening * depth + closing * depth)


# A header, and how many bytes of data follow it.
SEEDS = [
    ("{}", 0),
    ('{"__metadata__":{"format":"pt","a":"\\u00e4"}}', 0),
    ('{"__metadata__":null}', 0),
    ('{"a":%s}' % tensor(), 4),
    ('{"a":%s,"b":%s}' % (tensor("F32", "[2,3]", "[0,24]"), tensor("F64", "[]", "[24,32]")), 32),
    ('{"b":%s,"a":%s}' % (tensor(offsets="[4,8]"), tensor()), 8),
    ('{"a":%s,"z":%s}' % (tensor("F4", "[8]"), tensor("BF16", "[0]", "[4,4]")), 4),
    ('  {"x" :\t{"dtype":"I64", "shape":[1,1,1] , "data_offsets":[0,8]}\r\n}  ', 8),
    ('{"a":%s}' % tensor(shape="[-0]", offsets="[0,0]"), 0),
    ('{"a":%s}' % tensor(shape="[0]", offsets="[-0,0]"), 0),
    ('{"a":%s}' % tensor(shape="[0,18446744073709551615]", offsets="[0,0]"), 0),
    ('{"a":%s}' % tensor(shape="[4.0]"), 4),
    ('{"a":%s}' % tensor(shape="[4e0]"), 4),
    ('{"a":%s,"a":%s}' % (tensor(), tensor()), 4),
    ('{"__metadata__":{},"__metadata__":{}}', 0),
    ('{"__metadata__":{"a":"1","a":"2"}}', 0),
    ('{"\\ud83d\\ude00":%s}' % tensor(), 4),
    ('{"\U0001f600\u00e4\u20ac":%s}' % tensor(), 4),
    ('{"a\\u0000b":%s}' % tensor(), 4),
    ('{"a":["U8",[4],[0,4]]}', 4),
    ('{"a":%s}' % tensor().replace('"U8"', '{"U8":null}'), 4),
    ignored('[1.5,-2e-3,0E+5,true,false,null,"\\"\\\\\\/\\b\\f\\n\\r\\t",{"x":{}}]'),
    ignored("-0"),
    ignored("1e308"),
    ignored("17976931348623157" + "0" * 292),
    ignored("0." + "0" * 400 + "1e405"),
    ignored("99999999999999999999999"),
    ignored("-9223372036854775809"),
    ignored('{"x":1,"x":2}'),
    *[nested(depth) for depth in (1, 60, 123, 124, 125, 126, 127, 130)],
    *[nested(depth, '{"x":', "}") for depth in (60, 124, 126)],
]
SEEDS = [(header.encode(), data) for header, data in SEEDS]

# What a name may hold, and what none may.
NAMES = [
    *(rb"\u0041", rb"\u00e4", rb"\ud83d\ude00", rb"\ud800", rb"\udc00", rb"\ud800\ud800", rb"\udc00\ud800"),
    *(rb"\"", rb"\/", rb"\x41", rb"\U0041", rb"\u00g0", rb"\u 041", rb"\u+041", rb"\'"),
    *(b"\x01", b"\x1f", b"\x7f", b"\xc2\x80", b"\xef\xbb\xbf", b"\xef\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf"),
    *(b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xff"),
]
NAME_SEEDS = [(b'{"%s":%s}' % (name, tensor().encode()), 4) for name in NAMES]
NAME_SEEDS += [(b'{"__metadata__":{"a":"%s"}}' % name, 0) for name in NAMES]

WORDS = [
    word.encode() if isinstance(word, str) else word
    for word in (
        *'[]{},:"0123456789-+.eE \t\r\n\v\f/\\',
        "\0",
        "-0",
        "-1",
        "00",
        "01",
        "1.",
        ".5",
        "1.5",
        "1e",
        "1e5",
        "1E-5",
        "1e308",
        "1e309",
        "1e999",
        "-1e999",
        "0e999",
        "0e99999999999",
        "1e-99999999999",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "9" * 400,
        "null",
        "true",
        "false",
        "nul",
        "NaN",
        "Infinity",
        "//x\n",
        "/**/",
        "'",
        '"dtype"',
        '"dtype":"U8",',
        '"shape"',
        '"shape":[4],',
        '"data_offsets"',
        '"__metadata__"',
        '"__metadata__":{"x":"y"},',
        '"x":1,',
        "\\u0000",
        "\\u0041",
        "\\ud800",
        "\\udc00",
        "\\ud83d\\ude00",
        "\\ud800\\u0041",
        "\\uD8",
        "\\x41",
        "\\/",
        "\x7f",
        "\x1f",
        "\u00a0",
        "\u2028",
        "\u3000",
        "\ufeff",
        "\U0010ffff",
        b"\xff",
        b"\xc3",
        b"\xc0\x80",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        "[" * 124,
        "]" * 124,
        '{"x":' * 60,
    )
]


def number_at(draw, text):
    """Where a number or word ends, or anywhere."""
    ends = [i for i in range(1, len(text)) if text[i - 1 : i].isalnum() and text[i] in b",]} "]
    return draw.choice(ends) if ends else draw.randrange(len(text) + 1)


def mutate(draw, text):
    at = draw.randrange(len(text) + 1)
    kind = draw.randrange(8)
    if kind == 0 and at < len(text):
        return text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at + draw.randrange(8) :]
    if kind == 2:
        return text[: draw.randrange(len(text) + 1)] + draw.choice(SEEDS)[0][at:]
    if kind == 3:
        end = at + draw.randrange(40)
        return text[:end] + text[at:]
    if kind == 4:
        at = number_at(draw, text)
    if kind == 5 and at < len(text):
        return text[:at] + draw.choice(WORDS) + text[at + 1 :]
    return text[:at] + draw.choice(WORDS) + text[at:]


def make_file(draw):
    header, data = draw.choice(SEEDS if draw.randrange(5) else NAME_SEEDS)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        header = mutate(draw, header)
    if draw.randrange(20) == 0:
        data = draw.randrange(40)
    length = len(header) if draw.randrange(50) else draw.choice((0, 1, len(header) + 1, 1 << 40, (1 << 64) - 1))
    file = struct.pack("<Q", length) + header + bytes(data)
    return file if draw.randrange(100) else file[: draw.randrange(len(file))]


def reference_takes(file):
    try:
        safetensors.deserialize(file)
    except safetensors.SafetensorError:
        return False
    except BaseException as error:  # a panic of its own; Ctrl-C is none
        if isinstance(error, (KeyboardInterrupt, MemoryError)):
            raise
        return False
    return True


def gpuwm_verdicts(program, files):
    program.stdin.write(struct.pack("<I", len(files)))
    for file in files:
        program.stdin.write(struct.pack("<I", len(file)) + file)
    program.stdin.flush()
    verdicts = program.stdout.read(len(files))
    if len(verdicts) != len(files):
        sys.exit("FAIL: gpuwm's program ended among the files")
    return verdicts


def main():
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    draw = random.Random(seed)
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    counts, looser = Counter(), []
    for begin in range(0, iterations, BATCH):
        files = [make_file(draw) for _ in range(min(BATCH, iterations - begin))]
        for file, verdict in zip(files, gpuwm_verdicts(program, files)):
            takes = reference_takes(file)
            counts[takes, chr(verdict)] += 1
            if verdict == ord("+") and not takes:
                looser.append(file)
    program.stdin.close()
    if program.wait() != 0:
        sys.exit(f"FAIL: gpuwm's program ended with {program.returncode}")
    both = counts[True, "+"], counts[False, "-"] + counts[False, "x"]
    print(
        f"{iterations} files (seed {seed}), safetensors {safetensors.__version__}: both take {both[0]}, both refuse {both[1]}, "
        f"only gpuwm refuses {counts[True, '-'] + counts[True, 'x']} ({counts[True, 'x']} by limits of its own), "
        f"only gpuwm takes {len(looser)}"
    )
    for file in looser[:SHOWN]:
        print(f"FAIL: only gpuwm takes {file!r}")
    if not both[0] or not both[1]:
        sys.exit("FAIL: one of the verdicts never came")
    sys.exit(1 if looser else 0)


if __name__ == "__main__":
    main()
