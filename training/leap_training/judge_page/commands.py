"""The command `leap report`."""

from __future__ import annotations

from pathlib import Path

import click

from leap_features.explained import explained


@click.command("report")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    "out_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the page is written.  [default: report.html in DIR]",
)
def report_command(directory: Path, out_path: Path | None) -> None:
    """Show what the judge found as one self-contained HTML page.

    DIR is what `leap evaluate --out` wrote: judged.json, rows.parquet and predictions.parquet.
    """
    from leap_training.judge_page.page import page  # noqa: PLC0415  # `--help` needs no pyarrow
    from leap_training.judge_page.reading import JUDGED, PREDICTIONS, ROWS, read  # noqa: PLC0415
    from leap_training.judge_page.verdict import JudgedError  # noqa: PLC0415
    from leap_training.page.writing import check_page, write_page  # noqa: PLC0415

    out = directory / "report.html" if out_path is None else out_path
    with explained(OSError):
        check_page(out)
    if out.exists() and any(
        (directory / name).exists() and out.samefile(directory / name) for name in (JUDGED, ROWS, PREDICTIONS)
    ):
        raise click.ClickException(f"{out} is what this command reads: name another file to write to")
    with explained(JudgedError, OSError):
        write_page(out, page(read(directory)))
    click.echo(f"written: {out}", err=True)
