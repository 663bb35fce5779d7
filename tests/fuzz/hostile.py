"""Random edits of bytes, JSON documents or lines of text, which turn a valid file into a hostile one."""

import copy
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Draw:
    """Random choices that depend on a seed."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random(repr(seed))

    def number(self, low: int, high: int) -> int:
        """Choose an integer from low to high, both included."""
        return self._random.randint(low, high)

    def pick(self, values: Sequence[T]) -> T:
        """Choose one of the values."""
        return self._random.choice(values)

    def flip(self) -> bool:
        """Choose True or False."""
        return self._random.random() < 0.5

    def some(self, most: int) -> bytes:
        """Return at most this many random bytes."""
        return self._random.randbytes(self._random.randint(0, most))


NUMBERS = (*range(5), *(2**n - d for n in (7, 8, 15, 16, 31, 32) for d in (0, 1)), 2**63, 2**64 - 1)
_TEXTS = """x p00 .. . / ../../x /etc/passwd a/b a\b -x ~ `x` <script>alert(1)</script> "'> {{1}} ${x} 1e999 nan -1 %s%n
train True null $(touch) é"""
_LONG = ["", " ", "\t", "a\nb", "\r", "\x00", "\x1b[2J", "\u202e", "\U0001f440", "x" * 300, "y" * 100_000]
TEXTS = (*_TEXTS.split(), *_LONG)
# JSON values, and some texts that are none; the values that Python reads differ in type, size and sign.
_VALUES = """null true false 0 -1 1 2 7 0.5 -0.0 1e308 1e999 -1e999 1e-400 NaN Infinity -Infinity [] {} [[]] [null] [0]
[1,2] [[0,1],[2]] {"a":1} {"a":{"b":[1]}} {"a":1,"a":2} "\\ud800" """
_NESTED = ["[" * 500 + "]" * 500, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000]
VALUES = (*_VALUES.split(), *("9" * digits for digits in (30, 400, 5000)), *_NESTED, *map(json.dumps, TEXTS))


def edited_bytes(draw: Draw, content: bytes, most: int = 4) -> bytes:
    """Change some bytes: overwrite, flip, cut, double, insert, remove."""
    found = bytearray(content)
    for _ in range(draw.number(1, most)):
        kind = draw.pick(["overwrite", "flip", "cut", "double", "insert", "delete", "set"])
        at = draw.number(0, len(found))
        if kind == "overwrite":
            width, order = draw.pick((1, 2, 4, 8)), draw.pick(("little", "big"))
            found[at : at + width] = (draw.pick(NUMBERS) % 256**width).to_bytes(width, order)
        elif kind == "flip" and at < len(found):
            found[at] ^= 1 << draw.number(0, 7)
        elif kind == "set" and at < len(found):
            found[at] = draw.number(0, 255)
        elif kind == "cut":
            del found[at:]
        elif kind == "double":
            found[at:at] = found[at : at + draw.number(1, 64)] * draw.pick((1, 2, 50))
        elif kind == "insert":
            found[at:at] = draw.some(8)
        elif kind == "delete":
            del found[at : at + draw.number(1, 64)]
    return bytes(found)


class _Raw(str):
    """Text that is inserted into a document verbatim."""


def edited_json(draw: Draw, document: Any, most: int = 3) -> bytes:
    """Change some values, keys and lengths in a JSON document; sometimes its bytes, too."""
    root = [copy.deepcopy(document)]
    for _ in range(draw.number(1, most)):
        slots = list(_slots(root))
        holder, key = slots[draw.number(0, len(slots) - 1)]
        kind = draw.pick(["value", "value", "value", "delete", "rename", "double", "wrap"])
        if kind == "value" or holder is root:
            holder[key] = _Raw(draw.pick(VALUES))
        elif kind == "delete":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[draw.pick(TEXTS)] = holder.pop(key)
        elif kind == "double" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[key] = [holder[key]]
    return _maybe_edited(draw, to_json(root[0]))


def to_json(document: Any) -> bytes:
    """Serialise a document, with its raw values inserted verbatim."""
    raw: list[str] = []

    def marked(value: Any) -> Any:
        if isinstance(value, _Raw):
            raw.append(value)
            return f"@@{len(raw) - 1}@@"
        if isinstance(value, dict):
            return {key: marked(item) for key, item in value.items()}
        return [marked(item) for item in value] if isinstance(value, list) else value

    text = json.dumps(marked(document))
    for number, value in enumerate(raw):
        text = text.replace(f'"@@{number}@@"', value)
    return text.encode("utf-8", "surrogatepass")


def edited_lines(draw: Draw, text: str, words: Sequence[str], most: int = 3) -> bytes:
    """Change some words or whole lines in a text; sometimes its bytes, too."""
    lines = text.split("\n")
    for _ in range(draw.number(1, most)):
        at = draw.number(0, len(lines) - 1)
        kind = draw.pick(["word", "word", "word", "line", "delete", "double", "join"])
        if kind == "word":
            parts = lines[at].split(" ")
            parts[draw.number(0, len(parts) - 1)] = draw.pick(words)
            lines[at] = " ".join(parts)
        elif kind == "line":
            lines[at] = draw.pick(words)
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "join":
            lines[at] += " " + lines[draw.number(0, len(lines) - 1)]
        elif len(lines) > 1:
            del lines[at]
    return _maybe_edited(draw, "\n".join(lines).encode("utf-8", "surrogatepass"))


def _maybe_edited(draw: Draw, content: bytes) -> bytes:
    return edited_bytes(draw, content, 2) if draw.number(0, 7) == 0 else content


def _slots(holder: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(enumerate(holder)) if isinstance(holder, list) else list(holder.items()):
        yield holder, key
        if isinstance(value, dict | list):
            yield from _slots(value)
