"""The hardware catalogue: what each accelerator's maker publishes about it, and what an hour of it costs.

`hardware.csv` beside this module holds one accelerator a row. Its columns, which a catalogue of your own shares:

| column | meaning |
|---|---|
| name | canonical name, one of those that events and launchers may call the `hardware_type` |
| aliases | other names of the same thing, joined by `|` |
| vendor, architecture, form_factor | as the maker writes them |
| released | year-month in which the maker announced it |
| memory_gib | memory of one accelerator, as published (makers write GB and count in GiB) |
| memory_bandwidth_gbs | peak memory bandwidth, GB/s |
| dense_bf16_or_fp16_tflops | peak of the 16-bit format used for training, **dense**, with FP32 accumulation; where a \
sheet gives only the figure with 2:4 sparsity, half of it |
| fp32_tflops | peak in FP32 without tensor cores; the only published FP32 peak where a maker does not split it |
| interconnect_gbs | GB/s between one accelerator and all its peers in a host or pod, both directions added (NVLink, \
Infinity Fabric, ICI, NeuronLink, RoCE); for a card in a slot its PCIe link, since NVLink bridges join only pairs |
| interconnect | what that link is |
| hourly_cost_usd | public on-demand list price of one accelerator for one hour, its share of the host included unless \
cost_source says otherwise |
| spec_source, cost_source | where the numbers are from; `assumed: …` where nobody publishes a price |

A number that nobody publishes is empty in the file and `None` here, never zero. "One accelerator" is what a trainer
runs on: a GPU (half a K80 card), a whole MI250X module, a TPU chip (not a core). A bare name such as `A100` or `H100`
means the SXM part with most memory that is common under it (80 GB for both), `V100` and `P100` the 16 GB parts.

History is kept under the name that an event gives, so a fleet calls a type by one name throughout; the catalogue only
says what is known of it, by whichever of its names.

Prices change and differ by contract: they are a default to rank with, made to be replaced. A file with the columns
`name` and `hourly_cost_usd` alone is enough for that (see `load`).

Light on purpose: the launcher imports this module, so it needs nothing but `csv`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

SPECS: tuple[str, ...] = (
    "memory_gib",
    "memory_bandwidth_gbs",
    "dense_bf16_or_fp16_tflops",
    "fp32_tflops",
    "interconnect_gbs",
)
"""The numeric columns that models take as features. Each is > 0 or None, so its logarithm is defined. The price is not
among them: it changes without the hardware doing so, and ranking divides by it."""

NUMBERS: tuple[str, ...] = (*SPECS, "hourly_cost_usd")
TEXTS: tuple[str, ...] = (
    "vendor",
    "architecture",
    "form_factor",
    "released",
    "interconnect",
    "spec_source",
    "cost_source",
)
COLUMNS: tuple[str, ...] = ("name", "aliases", *TEXTS, *NUMBERS)

# As long as `model_type` may be: the name becomes part of the same keys.
MAX_NAME = 128

_SEPARATORS = re.compile(r"[\s_-]+")
_RELEASED = re.compile(r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])")


class CatalogueError(ValueError):
    """A catalogue file breaks a rule; the message names file, line, column, value, rule and mend."""


class Hardware(NamedTuple):
    """One accelerator. Units are in the field names; see the module's table. `None` means not published."""

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    architecture: str = ""
    form_factor: str = ""
    released: str = ""
    interconnect: str = ""
    spec_source: str = ""
    cost_source: str = ""
    memory_gib: float | None = None
    memory_bandwidth_gbs: float | None = None
    dense_bf16_or_fp16_tflops: float | None = None
    fp32_tflops: float | None = None
    interconnect_gbs: float | None = None
    hourly_cost_usd: float | None = None

    def specs(self) -> dict[str, float | None]:
        """The features of this hardware, by column, in the order of `SPECS`."""
        return {column: getattr(self, column) for column in SPECS}


class Catalogue(Mapping[str, Hardware]):
    """Accelerators, found by canonical name or alias. Immutable; iterates over canonical names, in the file's order.

    Case, and which of space, `-` and `_` separates words, make no difference: `nvidia l4`, `NVIDIA-L4` and `NVIDIA_L4`
    are one name.
    """

    def __init__(self, rows: Iterable[Hardware]) -> None:
        self._rows: dict[str, Hardware] = {row.name: row for row in rows}
        # Names after aliases: a canonical name always means its own row.
        self._found = {_key(alias): row for row in self._rows.values() for alias in row.aliases}
        self._found.update({_key(row.name): row for row in self._rows.values()})

    def __getitem__(self, name: str) -> Hardware:
        return self._found[_key(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def lookup(self, name: str) -> Hardware | None:
        """The accelerator with this canonical name or alias, or None."""
        return self._found.get(_key(name))

    def canonical(self, name: str) -> str | None:
        """The canonical name of what `lookup` finds, or None."""
        row = self._found.get(_key(name))
        return None if row is None else row.name


def load(path: str | Path, base: Catalogue | None = None) -> Catalogue:
    """Read a catalogue file (CSV, UTF-8) and lay it over `base`, by default the built-in catalogue.

    To replace the built-in one instead of extending it, pass `Catalogue([])`.

    A row whose name is a name or an alias in `base` replaces that row, except that columns which the file does not
    have keep their values: a file with `name,hourly_cost_usd` changes prices and nothing else. Any other name is a new
    row. An empty cell means "not published". An alias in the file is taken from the row of `base` that has it, so that
    `A100` can mean your A100s. Numbers without a source get `file:line` as theirs.

    Raises CatalogueError (naming file, line, value, rule and mend) and OSError.
    """
    path = Path(path)
    known = CATALOGUE if base is None else base
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = _read(stream, path.name, known)
    except UnicodeDecodeError as error:
        raise CatalogueError(
            f"{path.name} must be UTF-8 text, got byte {error.object[error.start]:#04x}; re-encode it"
        ) from error
    taken = {_key(alias) for row in rows for alias in (row.name, *row.aliases)}
    merged = {row.name: row._replace(aliases=_without(row.aliases, taken)) for row in known.values()}
    merged.update({row.name: row for row in rows})
    return Catalogue(merged.values())


def _key(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().casefold())


def _without(aliases: tuple[str, ...], taken: set[str]) -> tuple[str, ...]:
    return tuple(alias for alias in aliases if _key(alias) not in taken)


def _read(lines: Iterable[str], file: str, base: Catalogue) -> list[Hardware]:
    reader = csv.reader(lines, strict=True)
    rows: list[Hardware] = []
    where: dict[str, int] = {}  # key of every name and alias -> the line that claims it
    header: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = _header(cells, f"{file} line {reader.line_num}")
                continue
            at = f"{file} line {reader.line_num}"
            if len(cells) != len(header):
                raise CatalogueError(
                    f"{at}: a row must have {len(header)} cells as the header has, got {len(cells)}; "
                    "quote cells that hold a comma"
                )
            row = _row(dict(zip(header, cells, strict=True)), at, f"{file}:{reader.line_num}", base)
            for name in (row.name, *row.aliases):
                claimed = where.setdefault(_key(name), reader.line_num)
                if claimed != reader.line_num:
                    raise CatalogueError(
                        f"{at}: names and aliases must be unique, {name!r} is already on line {claimed}; remove one"
                    )
            rows.append(row)
    except csv.Error as error:
        raise CatalogueError(f"{file} line {reader.line_num}: not CSV ({error}); check the quotes") from error
    if header is None:
        raise CatalogueError(f"{file}: the first line must be the header, got an empty file; begin with 'name,…'")
    return rows


def _header(cells: list[str], at: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    for column in header:
        if column not in COLUMNS:
            raise CatalogueError(f"{at}: unknown column {column!r}; columns are {', '.join(COLUMNS)}")
        if header.count(column) > 1:
            raise CatalogueError(f"{at}: column {column!r} occurs twice; remove one")
    if "name" not in header:
        raise CatalogueError(f"{at}: column 'name' is missing, got {', '.join(header)}; add it")
    return header


def _row(cells: dict[str, str], at: str, source: str, base: Catalogue) -> Hardware:
    given = _name(cells["name"], at, "name")
    known = base.lookup(given)
    # The spelling of `base` stays, since that of a price list says nothing.
    name = given if known is None else known.name
    fields: dict[str, Any] = {"name": name}
    if "aliases" in cells:
        aliases = [given, *(_name(alias, at, "aliases") for alias in cells["aliases"].split("|") if alias.strip())]
        for alias in aliases:
            other = base.lookup(alias)
            if other is not None and other.name != name and _key(other.name) == _key(alias):
                raise CatalogueError(
                    f"{at}: alias {alias!r} is the canonical name of another row; give {name!r} another alias"
                )
        fields["aliases"] = tuple(dict.fromkeys(alias for alias in aliases if _key(alias) != _key(name)))
    for column in TEXTS:
        if column in cells:
            fields[column] = cells[column].strip()
    if fields.get("released") and not _RELEASED.fullmatch(fields["released"]):
        raise CatalogueError(f"{at}: released must be YYYY-MM or empty, got {fields['released']!r}")
    for column in NUMBERS:
        if column in cells:
            fields[column] = _number(cells[column], at, column)
    if any(fields.get(column) is not None for column in SPECS):
        fields["spec_source"] = fields.get("spec_source") or source
    if fields.get("hourly_cost_usd") is not None:
        fields["cost_source"] = fields.get("cost_source") or source
    return Hardware(**fields) if known is None else known._replace(**fields)


def _name(cell: str, at: str, column: str) -> str:
    name = cell.strip()
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise CatalogueError(f"{at}: {column} must have 1 to {MAX_NAME} printable characters, got {cell!r}; rename it")
    return name


def _number(cell: str, at: str, column: str) -> float | None:
    text = cell.strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    # Also refuses nan; a million is far above anything real, so it is a slip of units.
    if not 0.0 < number < 1e6:
        raise CatalogueError(
            f"{at}: {column} must be a number above 0 and below 1e6, got {cell!r}; leave it empty if not published"
        )
    return number


def _built_in() -> Catalogue:
    return load(Path(__file__).with_name("hardware.csv"), base=Catalogue(()))


CATALOGUE: Catalogue = _built_in()
"""The built-in catalogue. A catalogue of your own is the result of `load`."""


def lookup(name: str) -> Hardware | None:
    """`Catalogue.lookup` in the built-in catalogue."""
    return CATALOGUE.lookup(name)


def canonical(name: str) -> str | None:
    """`Catalogue.canonical` in the built-in catalogue."""
    return CATALOGUE.canonical(name)
