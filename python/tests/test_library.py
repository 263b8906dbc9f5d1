"""The signatures in _c.py are those of include/megalith.h."""
import os
import re

import pytest

from megalith import _c

HEADER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "include", "megalith.h")


def plain():
    """The header without comments, blanks squeezed."""
    with open(HEADER) as f:
        return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S))


def declared():
    """{function: (what it returns, [types of its arguments])}"""
    out = {}
    for result, name, arguments in re.findall(r"(?:^|(?<=[;{}] )|(?<=[;{}]))([a-z][\w ]*?[ \*]+)(meg_\w+)\(([^()]*)\);", plain()):
        out[name] = (result.strip(), [a.strip() for a in arguments.split(",")])
    return out


KINDS = {"c_int": ("int", "meg_status"), "c_int64": ("int64_t",), "c_long": ("int64_t",), "c_double": ("double",),
         "c_bool": ("bool",), "NoneType": ("void",)}


def fits(kind, text):
    """Does the ctypes type stand for C's?"""
    name = "NoneType" if kind is None else kind.__name__
    if name in KINDS:
        return any(re.match(rf"(const )?{t}\b(?! ?\*)", text) for t in KINDS[name])
    if name == "c_char_p":
        return "char *" in text
    return "*" in text or "[]" in text


HAVE = declared()


@pytest.mark.parametrize("name", [n for n in _c.SIGNATURES if n in HAVE])
def test_signature(name):
    result, arguments = _c.SIGNATURES[name]
    assert fits(result, HAVE[name][0]), f"{name} returns {HAVE[name][0]}"
    assert len(arguments) == len(HAVE[name][1]), f"{name}: {HAVE[name][1]}"
    for kind, text in zip(arguments, HAVE[name][1]):
        assert fits(kind, text), f"{name}: {text} is {kind}"


def test_the_header_was_read():
    assert len(HAVE) > 30 and "meg_open" in HAVE and HAVE["meg_open"][0] == "meg_status"


@pytest.mark.parametrize("enum, names", [("meg_status", _c.STATUS)])
def test_enums(enum, names):
    body = re.search(rf"typedef enum {enum} {{([^}}]*)}}", plain()).group(1)
    assert tuple(w.split("=")[0].strip() for w in body.split(",")) == names


def test_report():
    body = re.search(r"typedef struct meg_report {([^}]*)}", plain()).group(1)
    fields = [f.strip() for line in body.split(";") if line.strip() for f in line.strip().split(" ", 1)[1].split(",")]
    assert fields == [name for name, _ in _c.Report._fields_]
