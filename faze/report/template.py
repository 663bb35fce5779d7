"""The templates of the pages, with the words that they use."""

import jinja2

from faze.report import data_words, words

FILTERS = (
    "degrees",
    "change",
    "interval",
    "ratio",
    "saving",
    "percent",
    "share",
    "digits",
    "milliseconds",
    "gibibytes",
    "duration",
    "count",
    "marked",
    "angle",
)


def template(name: str) -> jinja2.Template:
    """A template of this package; a name that it does not get is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("faze.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    for filter_name in FILTERS:
        environment.filters[filter_name] = getattr(words, filter_name)
    environment.globals["data_words"] = data_words
    return environment.get_template(name)
