"""Filling in the page's template with tables, figures, pictures and videos."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from faze.base.tier_colors import BASELINE, tier_colors
from faze.evaluation.design import MOST_PEOPLE, MOST_SEEDS
from faze.evaluation.statistics import SEEDS_FOR_A_TIER
from faze.evaluation.summary import SENTENCES
from faze.report import formats, table_rows
from faze.report.results import Results
from faze.report.template import load_template
from faze.report.tier_figures import TALK

PHASES = (
    "data",
    "copy",
    "forward",
    "backward",
    "optimizer",
    "graph",
)  # of a step, where these are told apart


def render(
    *,
    title: str,
    note: str,
    summary: Mapping[str, Any],
    results: Results,
    figures: Mapping[str, str],
    walks: Sequence[Mapping[str, Any]],
    atlas: Mapping[str, Any],
    data: Sequence[Mapping[str, Any]],
) -> str:
    """Render the page as HTML.

    Args:
        title: of the page.
        note: what a reader must know first; empty where there is nothing.
        summary: of the evaluation.
        results: its tables.
        figures: data URI of each figure.
        walks: of every tier, the last first.
        atlas: what `collect_atlas` gives.
        data: what the page of each data set tells.
    """
    return load_template("report.html.j2").render(
        title=title,
        note=note,
        summary=summary,
        results=results,
        figures=figures,
        walks=walks,
        atlas=atlas,
        data=data,
        of_seeds=len(summary["seeds"]) >= SEEDS_FOR_A_TIER,  # paired intervals; bootstraps are over seeds from two on
        colors=tier_colors(results.tiers) | dict.fromkeys(summary.get("controls", ()), BASELINE),
        trained=datetime.date.fromtimestamp(summary["began"]).isoformat(),
        machine=formats.facts(summary["machine"] or summary["training_machine"]),
        sentences=[summary["verdict"][part] for part in SENTENCES if summary["verdict"][part]],
        phases=[phase for phase in PHASES if f"{phase}_ms" in results.tables["performance"]],
        limits=bool(results.tables["performance"]["share_of_matmul_roof"].notna().all()),
        talk=TALK,
        rows=table_rows.tier_rows(summary, results),
        shots=table_rows.shot_rows(results),
        every_k=results.tables["tiers"]["k"].nunique() <= table_rows.MOST_SHOTS,
        learner_rows=table_rows.learner_rows(results),
        pixel_checks=table_rows.pixel_check_rows(results),
        person_variance=results.tables["person_variance"].to_dict("records"),
        coverage=table_rows.coverage_rows(results),
        redirection=table_rows.redirection_rows(results),
        turned=table_rows.turned_rows(results),
        moved=table_rows.moved_rows(results),
        likeness=table_rows.likeness_rows(results),
        changes=results.tables["changes"].fillna({"verdict": ""}).to_dict("records"),
        design=results.tables["design"].to_dict("records"),
        most_seeds=MOST_SEEDS,
        most_people=MOST_PEOPLE,
        times=table_rows.time_rows(results),
    )
