"""What the page shows of the walks: contact sheets, videos, the atlas, and the angles seen in them."""

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from faze.base.errors import UserError
from faze.base.files import as_written, read_json
from faze.base.result_paths import ResultPaths
from faze.report import formats
from faze.report.data_uris import Embedder
from faze.report.results import read_csv

ATLAS, ATLAS_BYTES = "atlas.json", 3 * 2**20  # of the page
WALK_VIDEOS = 8  # embedded per page; the others stay where they are


def collect_walks(paths: ResultPaths, tiers: Sequence[str], seed: int, embedder: Embedder) -> list[dict[str, Any]]:
    """Collect contact sheets of every tier and videos of the last, which is embedded first, while there is room."""
    walks = []
    for position, tier in enumerate(reversed(tiers)):
        folder = paths.walks(tier, seed)
        sheet = folder / "contact_sheet.png"
        files = sorted(folder.glob("*.mp4"))
        shown = files[:: max(1, -(-len(files) // WALK_VIDEOS))] if position == 0 else []
        videos = [(formats.walk_title(path), embedder.file(path, "video/mp4")) for path in shown]
        walks.append(
            {
                "tier": tier,
                "folder": str(folder.relative_to(paths.root)),
                "sheet": embedder.picture(sheet) if sheet.is_file() else None,
                "videos": [(title, uri) for title, uri in videos if uri],
                "total": len(files),
            }
        )
    return walks


def collect_atlas(paths: ResultPaths, tiers: Sequence[str], seed: int) -> dict[str, Any]:
    """Collect the atlas of the first and the last tier: steps, range_deg, codes, and per person the sheets, embedded.

    Nothing where walks have none, as older ones; people whose sheets are too large for a page are left out.

    Raises:
        UserError: an index is torn, or the tiers have different people.
    """
    folders = {tier: paths.walks(tier, seed) for tier in dict.fromkeys([tiers[0], tiers[-1]])}
    if not all((folder / ATLAS).is_file() for folder in folders.values()):
        return {}
    embedder, people = Embedder(ATLAS_BYTES), {}
    for tier, folder in folders.items():
        index = read_json(folder / ATLAS, ("steps", "range_deg", "sheets"), "run walk again")
        with as_written(folder / ATLAS, "run walk again"):
            for row in index["sheets"]:
                uri = _sheet(folder, row["sheet"], embedder)
                sheet = {"tier": tier, "uri": uri, "seen_deg": row["seen_deg"]}
                people.setdefault((row["dataset"], row["person"]), {}).setdefault(row["code"], []).append(sheet)
    whole = [
        {"dataset": dataset, "person": person, "codes": codes}
        for (dataset, person), codes in people.items()
        if all(len(sheets) == len(folders) and all(sheet["uri"] for sheet in sheets) for sheets in codes.values())
    ]
    return {"steps": index["steps"], "range_deg": index["range_deg"], "people": whole} if whole else {}


def _sheet(folder: Path, name: str, embedder: Embedder) -> str | None:
    """Embed a sheet that lies in the folder, wherever an index says it does."""
    try:
        return embedder.file(folder / PurePath(name).name, "image/webp")
    except OSError as error:
        raise UserError(
            f"{folder / ATLAS}: its sheet {name!a:.100} cannot be read ({error.strerror}): run walk again"
        ) from None


def walk_angles(paths: ResultPaths, tiers: Sequence[str], seed: int) -> dict[str, pd.DataFrame]:
    """Read the angles asked and seen in the walks of the first and the last tier; of older walks there are none.

    Raises:
        UserError: a table is torn.
    """
    files = {tier: paths.walks(tier, seed) / "angles.csv" for tier in dict.fromkeys([tiers[0], tiers[-1]])}
    return {tier: read_csv(path, "run walk again") for tier, path in files.items() if path.is_file()}
