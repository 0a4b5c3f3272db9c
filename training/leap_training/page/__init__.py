"""Self-contained HTML pages with figures: what `leap waste` and other reports write for people to read and pass on.

A page is one file. It asks nothing of the network, runs no script, follows the reader's light or dark preference,
prints, and fits windows from 400 pixels on. Every figure has its numbers beneath it as a table.

The pages are built as trees of elements by the standard library (see `elements`), and the charts are plain SVG. A
template engine would add a dependency and escape only where it is asked to; a plotting library would bring megabytes of
script, or pictures whose text nobody can select, search or have read out.
"""

from leap_training.page.charts import Bar, Series, Stack, bars, legend, stacks
from leap_training.page.document import document, figure, folded
from leap_training.page.dots import Dot, DotRow, Mark, Reference, dots, legend_of_marks
from leap_training.page.elements import Child, Element, element, legible
from leap_training.page.numbers import count, day, interval, money, percent, round_money, short, short_money
from leap_training.page.plane import Density, Line, Rule, legend_of_lines, legend_of_shades, plane
from leap_training.page.scales import Axis
from leap_training.page.sections import notes, reading, tiles
from leap_training.page.tables import Column, HeatCell, heat_table, table

__all__ = [
    "Axis",
    "Bar",
    "Child",
    "Column",
    "Density",
    "Dot",
    "DotRow",
    "Element",
    "HeatCell",
    "Line",
    "Mark",
    "Reference",
    "Rule",
    "Series",
    "Stack",
    "bars",
    "count",
    "day",
    "document",
    "dots",
    "element",
    "figure",
    "folded",
    "heat_table",
    "interval",
    "legend",
    "legend_of_lines",
    "legend_of_marks",
    "legend_of_shades",
    "legible",
    "money",
    "notes",
    "percent",
    "plane",
    "reading",
    "round_money",
    "short",
    "short_money",
    "stacks",
    "table",
    "tiles",
]
