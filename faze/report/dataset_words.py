"""A data set in words: what the terminal, the data pages and the report say of it."""

from collections.abc import Mapping
from typing import Any

from faze.evaluation.wording import NAMES, counted

LABEL_SOURCE_WORDS = {
    "annotated": "from the data set's own annotation",
    "supplementary": "from the FAZE supplementary file",
    "estimated": "estimated from detected landmarks",
    "stored": "as found in the store, their source not stated",
}
VALIDITY_WORDS = {
    "valid": "on the screen",
    "off_screen": "off the screen",
    "unknown_screen": "with no screen known",
}
SIGNS = "Positive pitch is up, positive yaw to the picture's left, as the camera sees it."


def name(summary: Mapping[str, Any]) -> str:
    """Name a data set: MPIIGaze; a foreign store goes by its own name."""
    return NAMES.get(summary["dataset"], summary["dataset"])


def facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what is to be said beside the tables, as (what, which)."""
    told = [
        ("Strips", "{:,} of {} × {} px".format(summary["strips"], *summary["strip_px"])),
        ("Labels", _counted(summary["label_sources"], LABEL_SOURCE_WORDS, summary["strips"])),
        ("Gaze targets", _counted(summary["validities"], VALIDITY_WORDS, summary["strips"])),
    ]
    if summary["unusable_labels"]:
        told.append(("Unusable labels", f"{summary['unusable_labels']:,}, not finite or no angles"))
    if summary["devices"]:
        told.append(("Devices", _devices(summary["devices"])))
    return [*told, ("Checksums", checksums(summary["checksums"])), ("Digest", summary["digest"])]


def _counted(counts: Mapping[str, int], words: Mapping[str, str], total: int) -> str:
    """Write 12 off the screen, 588 on the screen; just the words where all are of one sort."""
    told = [(number, words.get(key, key)) for key, number in counts.items() if number]
    if len(told) == 1:
        return f"all {told[0][1]}"
    return ", ".join(f"{number:,} {what} ({percent(number / total)})" for number, what in told) or "none"


def _devices(devices: Mapping[str, int], most: int = 12) -> str:
    told = [f"{device} ({counted(people, 'person', 'people')})" for device, people in list(devices.items())[:most]]
    return ", ".join(told) + (f" and {len(devices) - most} more" if len(devices) > most else "")


def checksums(found: Mapping[str, Any] | None) -> str:
    """Say whether what was read is what was written."""
    if found is None:
        return "not verified"
    told = [f"{counted(found['intact'], 'person', 'people')} intact"] if found["intact"] else []
    if found["damaged"]:
        told.append(f"DAMAGED: {', '.join(found['damaged'][:12])}" + (" ..." if len(found["damaged"]) > 12 else ""))
    if found["without"]:
        told.append(f"{counted(found['without'], 'person', 'people')} without any")
    return ", ".join(told)


def rejected(rejects: Mapping[str, Any] | None) -> str:
    """Say in a sentence how many frames have no strip."""
    if rejects is None:
        return "No list of rejected frames lies beside the store."
    frames = counted(rejects["frames"], "frame is rejected", "frames are rejected")
    told = f"{frames}, {percent(rejects['share'])} of those annotated" if rejects["frames"] else "No frame is rejected"
    if gone := len(rejects["left_out"]):
        told += f"; {counted(gone, 'person is left out', 'people are left out')} whole"
    return f"{told}."


def kind_counts(kind: Mapping[str, Any]) -> str:
    """Write 12 frames of 3 people; 2 people whole."""
    told = []
    if kind["frames"]:
        told.append(f"{counted(kind['frames'], 'frame', 'frames')} of {counted(kind['people'], 'person', 'people')}")
    if kind["left_out"]:
        told.append(f"{counted(kind['left_out'], 'person', 'people')} whole")
    return "; ".join(told)


def percent(share: float) -> str:
    """Write 0.4 %; what is below a tenth as less than that, not as nothing."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def describe(summary: Mapping[str, Any]) -> str:
    """Describe the whole inspection for a terminal."""
    blocks = [
        [f"{name(summary)}, {summary['store']}: {counted(summary['people'], 'person', 'people')}"],
        _table(
            ("split", "people", "strips", "per person: least", "median", "most"),
            [
                (
                    s["split"],
                    f"{s['people']:,}",
                    f"{s['strips']:,}",
                    f"{s['least']:,}",
                    f"{s['median']:,.6g}",
                    f"{s['most']:,}",
                )
                for s in summary["splits"]
            ],
        ),
        _table(
            ("degrees", "least", "1 %", "median", "99 %", "most"),
            [(r["label"], *(f"{v:.1f}" for k, v in r.items() if k.endswith("_deg"))) for r in summary["ranges"]],
        ),
        [f"{what + ':':<17}{which}" for what, which in facts(summary)],
        _describe_rejects(summary["rejects"]),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _describe_rejects(rejects: Mapping[str, Any] | None) -> list[str]:
    lines = [rejected(rejects)]
    if rejects:
        told = [(kind_counts(kind), kind["reason"]) for kind in rejects["kinds"]]
        width = max((len(counts) for counts, _ in told), default=0)
        lines += [f"  {counts:<{width}}  {reason}" for counts, reason in told]
        if rejects["frames"] or rejects["left_out"]:
            lines.append(f"Each is listed in {rejects['sidecar']}.")
    return lines


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Align a table's first column left and its numbers right."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            f"{cell:<{w}}" if i == 0 else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
