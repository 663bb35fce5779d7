"""Draw docs/architecture.svg from the imports of the code: packages in layers, an arrow from each to what it uses.

python docs/architecture.py

An arrow that follows from others (a uses b, b uses c, so a may use c) is omitted.
A test compares the figure with the code.
"""

import ast
import html
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/architecture.svg"
WIDTH, MARGIN, BAND, GAP = 1020, 24, 104, 44  # px: figure, its border, a layer, the gap between layers
ROOM_WIDTH, LINE, LETTERS = 226, 16, 29  # px of a box and of a line of text; letters per line

Arrow = tuple[str, str]


def layers() -> list[list[str]]:
    """Return the packages of each layer, from the top, as in the import contract in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    rooms = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.replace("|", " ").replace(":", " ").split() for layer in rooms]


def imports() -> set[Arrow]:
    """Return every pair of packages of which the first imports the second."""
    graph = grimp.build_graph("faze", exclude_type_checking_imports=True, cache_dir=None)
    rooms = {room for layer in layers() for room in layer}
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = (f"{module}..".split(".")[1], f"{imported}..".split(".")[1])
            if pair[0] != pair[1] and rooms.issuperset(pair):
                found.add(pair)
    return found


def arrows(pairs: set[Arrow]) -> set[Arrow]:
    """Return the transitive reduction of the pairs."""

    def reached(start: str, without: Arrow) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            here = waiting.pop()
            new = {b for a, b in pairs if a == here and (a, b) != without} - seen
            seen |= new
            waiting += new
        return seen

    return {pair for pair in pairs if pair[1] not in reached(pair[0], pair)}


def purpose(room: str) -> str:
    """Return the first sentence of the docstring of a package, or of a module."""
    folder = ROOT / "faze" / room
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].split(": `")[0].split(". ")[0].rstrip(".:")


def wrapped(text: str) -> list[str]:
    """Break a sentence into lines that fit into a box."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def corners_px() -> dict[str, tuple[float, float]]:
    """Return the upper left corner of each package's box, px."""
    found = {}
    for row, layer in enumerate(layers()):
        step = (WIDTH - 2 * MARGIN) / len(layer)
        for column, room in enumerate(layer):
            left = MARGIN + step * (column + 0.5) - ROOM_WIDTH / 2
            found[room] = (left, MARGIN + row * (BAND + GAP))
    return found


def draw() -> str:
    """Return the figure as SVG."""
    corners, shown = corners_px(), sorted(arrows(imports()))
    height = 2 * MARGIN + len(layers()) * (BAND + GAP) - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif">',
        "<title>The packages of faze and what they import</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#5b6b7b"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *(_arrow(corners, shown, pair) for pair in shown),
        *(_room(room, *corner) for room, corner in corners.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrow(corners: dict[str, tuple[float, float]], shown: list[Arrow], pair: Arrow) -> str:
    """Draw from the lower edge of one box to the upper edge of the other, around the right side past several layers."""
    a, b = corners[pair[0]], corners[pair[1]]
    if b[1] - a[1] > 2.5 * (BAND + GAP):
        right, end = b[0] + ROOM_WIDTH + MARGIN, b[0] + ROOM_WIDTH + 3
        path = f"M{a[0] + ROOM_WIDTH:.0f} {a[1] + BAND / 2:.0f}H{right:.0f}V{b[1] + BAND / 2:.0f}H{end:.0f}"
    else:
        path = _curve(corners, shown, pair)
    return (
        f'<path class="arrow" data-from="{pair[0]}" data-to="{pair[1]}" d="{path}" fill="none" stroke="#8496a8" '
        'stroke-width="1.4" marker-end="url(#tip)"/>'
    )


def _curve(corners: dict[str, tuple[float, float]], shown: list[Arrow], pair: Arrow) -> str:
    """Draw a curve whose ends are spread along both edges."""

    def place(end: int) -> float:
        others = sorted((p for p in shown if p[end] == pair[end]), key=lambda p: corners[p[1 - end]][0])
        return corners[pair[end]][0] + ROOM_WIDTH * (others.index(pair) + 1) / (len(others) + 1)

    (x1, y1), (x2, y2) = (place(0), corners[pair[0]][1] + BAND), (place(1), corners[pair[1]][1] - 3)
    bend = max((y2 - y1) / 2, GAP / 2)
    return f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"


def _room(room: str, left: float, top: float) -> str:
    lines = "".join(
        f'<text x="{left + 12:.0f}" y="{top + 43 + LINE * row:.0f}" font-size="12.5" '
        f'fill="#44515e">{html.escape(line)}</text>'
        for row, line in enumerate(wrapped(purpose(room)))
    )
    return (
        f'<g class="room" data-room="{room}"><rect x="{left:.0f}" y="{top:.0f}" width="{ROOM_WIDTH}" height="{BAND}" '
        f'rx="8" fill="#f2f6fa" stroke="#5b6b7b"/><text x="{left + 12:.0f}" y="{top + 24:.0f}" font-size="16" '
        f'font-weight="600" fill="#16324f">{room}</text>{lines}</g>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
