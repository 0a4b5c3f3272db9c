"""History rows from the archive: for every key of every level, the row after each event that it took in.

What the worker does event by event is done here by window sums in DuckDB, in exact integers, so that a row of a key is
the same either way, bit for bit: state, version and every derived number. Per key, events come in the order in which
they became knowable: by the greatest record time so far in their partition, then by position. A row's event timestamp
is the greatest record time that it has taken in; of rows of equal timestamp the last stays.

Sums are HUGEINT, and become a DOUBLE only at the end, rounded once like Python's float(). HUGEINT
holds 4 million runs of one key at any throughput, and 60 million at throughputs
below 10¹² samples per second. Beyond that DuckDB stops with an error; it never rounds.
"""

# ruff: noqa: S608 - names are this product's own, other texts are quoted.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from leap_features import attempts, family
from leap_features.archive_reader import Segment, quoted, relation
from leap_features.events import FIXED_POINT
from leap_features.history import FEATURES, MAX_FAILURES
from leap_features.levels import JOIN_KEY_TYPES, LEVELS, Level

if TYPE_CHECKING:
    import duckdb

PART: Final = "part-00000.parquet"
"""The one file of each level's directory."""

_NAMES_AT_ONCE: Final = 100_000

_NEEDED: Final = (
    *attempts.NEEDED,
    *("x", "log_trainers", "log_batch", "job_family", "family_given", "family_rule", "job_name", "model_type"),
    *("hardware_type", "trainer_count", "batch_size"),
)

Say = Callable[[str], None]


class Counts(msgspec.Struct, frozen=True):
    """What became of the archived events, and the rows that were written per view."""

    archived: int
    folded: int
    duplicates: int
    conflicts: int
    without_effect: int
    """Cancelled and preempted attempts, and events that the worker turned away for their times."""
    rows: dict[str, int]


def write_history_rows(
    connection: duckdb.DuckDBPyConnection,
    found: Sequence[Segment],
    directory: Path,
    *,
    horizon_us: int,
    rules: family.Rules = family.DEFAULT_RULES,
    levels: Sequence[Level] = LEVELS,
    say: Say = lambda _line: None,
) -> Counts:
    """Write one Parquet data set per level, `{directory}/{view}/part-*.parquet`.

    Columns: the level's join keys, `event_timestamp` (UTC, microseconds), and every feature.

    Args:
        connection: a DuckDB made by `archive_reader.connect`; tables of its own are made in it.
        found: the segments of the archive.
        horizon_us: events recorded later than this after completion are left out, unless replayed.
        rules: what derives job families; events that another version of the rules named are named anew.
        say: is told, in a line, how it goes.
    """
    connection.execute("SET preserve_insertion_order = false")  # bounds the memory; no step relies on it
    archived = take_in(connection, found, horizon_us=horizon_us, rules=rules)
    say(f"{archived.folded:,} of {archived.archived:,} archived events count")
    rows = {}
    for level in levels:
        (directory / level.view).mkdir(parents=True)
        rows[level.view] = _write_level(connection, level, directory / level.view / PART)
        say(f"{level.view}: {rows[level.view]:,} rows")
    return msgspec.structs.replace(archived, rows=rows)


def take_in(
    connection: duckdb.DuckDBPyConnection,
    found: Sequence[Segment],
    *,
    horizon_us: int,
    rules: family.Rules = family.DEFAULT_RULES,
) -> Counts:
    """Make the tables `taken` (events that rows take in) and `runs` (one per attempt that counts) in `connection`."""
    connection.execute(f"""
        CREATE OR REPLACE TABLE effective AS
        {relation(found, _NEEDED, attempts.taken_in(horizon_us))}
    """)
    name_families_anew(connection, rules)
    connection.execute(f"CREATE OR REPLACE TABLE judged AS {attempts.with_first('effective')}")
    (archived,) = _one(connection, f"SELECT count(*) FROM ({relation(found, ('offset',))})")
    effective, folded, taken = _one(
        connection,
        "SELECT count(*), count(*) FILTER (folds), count(*) FILTER (folds OR digest = first_digest) FROM judged",
    )
    _make_text_of_batch(connection)
    # An attempt's place among all by (completed_at, attempt_id). With it the windows compare integers only.
    connection.execute("""
        CREATE OR REPLACE TABLE places AS
        SELECT row_number() OVER (ORDER BY completed_at, attempt_id) AS place, completed_at, attempt_id
        FROM (SELECT DISTINCT completed_at, attempt_id FROM judged WHERE folds)
    """)
    connection.execute(f"""
        CREATE OR REPLACE TABLE runs AS
        SELECT place, status = 'succeeded' AS succeeded, epoch_us(completed_at) AS completed_us, x, hardware_type,
            trainer_count, batch_size,
            epoch_us(completed_at) || ',' || {_json_text("attempt_id")} AS moment_text,
            '[' || moment_text || ',' || x || ',' || {_json_text("hardware_type")} || ',' || trainer_count || ','
                || batch_text || ']' AS latest_text,
            '[' || moment_text || ']' AS failure_text
        FROM judged JOIN places USING (completed_at, attempt_id)
        JOIN text_of_batch ON batch_size::VARCHAR = batch_key
        WHERE folds
    """)
    connection.execute("""
        CREATE OR REPLACE TABLE taken AS
        SELECT epoch, partition, "offset", epoch_us(recorded_at) AS recorded_us, place,
            folds AND status = 'succeeded' AS counts, folds AND status = 'failed' AS fails,
            x, log_trainers, log_batch, job_family, model_type, hardware_type, trainer_count
        FROM judged JOIN places USING (completed_at, attempt_id)
        WHERE folds OR digest = first_digest
    """)
    connection.execute("DROP TABLE judged; DROP TABLE effective; DROP TABLE places")
    return Counts(archived, folded, taken - folded, effective - taken, archived - effective, {})


def name_families_anew(connection: duckdb.DuckDBPyConnection, rules: family.Rules) -> None:
    """Derive the job families of the events in the table `effective` that another version of the rules named."""
    import pyarrow as pa  # noqa: PLC0415  # the launcher's side imports this package without pyarrow

    connection.execute("CREATE OR REPLACE TABLE renamed (model_type VARCHAR, job_name VARCHAR, family VARCHAR)")
    with connection.cursor() as names:
        names.execute(
            "SELECT DISTINCT model_type, job_name FROM effective WHERE NOT family_given AND family_rule <> $version",
            {"version": rules.version},
        )
        while batch := names.fetchmany(_NAMES_AT_ONCE):
            model_types, job_names = zip(*batch, strict=True)
            families = [family.family_of(model_type, job_name, rules) for model_type, job_name in batch]
            connection.register("batch", pa.table([model_types, job_names, families], ["m", "j", "f"]))
            connection.execute("INSERT INTO renamed SELECT m, j, f FROM batch")
            connection.unregister("batch")
    connection.execute("""
        CREATE OR REPLACE TABLE effective AS
        SELECT effective.* REPLACE (coalesce(renamed.family, effective.job_family) AS job_family)
        FROM effective LEFT JOIN renamed
        ON NOT family_given AND effective.model_type = renamed.model_type AND effective.job_name = renamed.job_name
    """)


def _make_text_of_batch(connection: duckdb.DuckDBPyConnection) -> None:
    """Batch sizes as the fold's own encoder writes them; DuckDB writes large and small floats differently."""
    import pyarrow as pa  # noqa: PLC0415

    sizes = connection.execute("SELECT batch_size::VARCHAR, any_value(batch_size) FROM judged GROUP BY ALL").fetchall()
    table = pa.table(
        {
            "batch_key": pa.array([key for key, _ in sizes], pa.string()),
            "batch_text": pa.array([msgspec.json.encode(size).decode() for _, size in sizes], pa.string()),
        }
    )
    connection.register("sizes", table)
    connection.execute("CREATE OR REPLACE TABLE text_of_batch AS SELECT * FROM sizes")
    connection.unregister("sizes")


def _json_text(column: str) -> str:
    """SQL: the string in `column` as JSON, escaped like the fold's own encoder escapes it."""
    escaped = column
    for character in ("\\", '"', *map(chr, range(32))):
        escape = msgspec.json.encode(character).decode()[1:-1]
        escaped = f"replace({escaped}, chr({ord(character)}), {quoted(escape)})"
    plain = f"NOT regexp_matches({column}, '[\\x00-\\x1f\"\\\\]')"
    return f"""('"' || CASE WHEN {plain} THEN {column} ELSE {escaped} END || '"')"""


def _write_level(connection: duckdb.DuckDBPyConnection, level: Level, target: Path) -> int:
    """Write the rows of one level; how many there are."""
    keys = ", ".join(level.join_keys)
    connection.execute(f"""
        CREATE OR REPLACE TABLE lanes AS
        SELECT *, dense_rank() OVER (ORDER BY {keys}) AS key,
            row_number() OVER (PARTITION BY {keys} ORDER BY epoch, partition) AS lane
        FROM (SELECT DISTINCT {keys}, epoch, partition FROM taken)
    """)
    (lane_count,) = _one(connection, "SELECT coalesce(max(lane), 1) FROM lanes")
    connection.execute(_CUMULATE.format(keys=keys, offsets=_offsets(lane_count)))
    connection.execute(_FAILURES)
    connection.execute(
        f"COPY ({_rows(level, lane_count)}) TO {quoted(str(target))} "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
    )
    (count,) = _one(connection, "SELECT count(*) FROM cumulated")
    connection.execute("DROP TABLE cumulated; DROP TABLE failing; DROP TABLE lanes")
    return int(count)


# Per key, in the order in which its events became knowable: what the row holds after each of them. Of rows of equal
# timestamp the last stays. `lane` numbers the (epoch, partition) pairs of a key, in the order of its version.
_CUMULATE: Final = f"""
    CREATE OR REPLACE TABLE cumulated AS
    WITH stamped AS (
        SELECT taken.*, key, lane,
            max(recorded_us) OVER (PARTITION BY key, lane ORDER BY "offset" ROWS UNBOUNDED PRECEDING) AS known_us
        FROM taken JOIN lanes USING ({{keys}}, epoch, partition)
    )
    SELECT key, greatest(known_us, 0) AS stamp_us,
        count(*) FILTER (counts) OVER before AS n,
        coalesce(sum(x::HUGEINT) FILTER (counts) OVER before, 0) AS sum_x,
        coalesce(sum(x::HUGEINT * x) FILTER (counts) OVER before, 0) AS sum_xx,
        coalesce(sum(log_trainers::HUGEINT) FILTER (counts) OVER before, 0) AS sum_log_trainers,
        count(log_batch) FILTER (counts) OVER before AS n_batch,
        coalesce(sum(log_batch::HUGEINT) FILTER (counts) OVER before, 0) AS sum_log_batch,
        max(place) FILTER (counts) OVER before AS latest,
        max(place, {MAX_FAILURES}) FILTER (fails) OVER before AS greatest_failures,
        {{offsets}}
    FROM stamped
    WINDOW before AS (PARTITION BY key ORDER BY known_us, lane, "offset" ROWS UNBOUNDED PRECEDING)
    QUALIFY lead(stamp_us) OVER (PARTITION BY key ORDER BY known_us, lane, "offset") IS DISTINCT FROM stamp_us
"""

# The failures that count are those after the latest success. Taking the 16 greatest first loses none of them.
_FAILURES: Final = """
    CREATE OR REPLACE TABLE failing AS
    WITH single AS (
        SELECT key, stamp_us, unnest(greatest_failures) AS place, latest FROM cumulated
        WHERE greatest_failures[1] > coalesce(latest, 0)
    )
    SELECT key, stamp_us, count(*) AS failures, string_agg(failure_text, ',' ORDER BY place) AS failures_text
    FROM single JOIN runs USING (place)
    WHERE NOT runs.succeeded AND place > coalesce(latest, 0)
    GROUP BY key, stamp_us
"""


def _offsets(lane_count: int) -> str:
    """SQL columns: the highest offset so far in each lane of a key."""
    lanes = range(1, lane_count + 1)
    return ", ".join(f'max("offset") FILTER (lane = {lane}) OVER before AS offset_{lane}' for lane in lanes)


def _rows(level: Level, lane_count: int) -> str:
    """SQL query: the rows of one level as Feast reads them."""
    lanes = range(1, lane_count + 1)
    lane_texts = ", ".join(f"max(lane_text) FILTER (lane = {lane}) AS lane_text_{lane}" for lane in lanes)
    versions = ", ".join(f"lane_text_{lane} || offset_{lane}" for lane in lanes)
    keys = ", ".join(f"any_value({name})::{_SQL_TYPES[JOIN_KEY_TYPES[name]]} AS {name}" for name in level.join_keys)
    features = {
        "last": f"success.x / {FIXED_POINT}::DOUBLE",
        "mean": _mean("sum_x", "n"),
        "std": f"sqrt(spread::DOUBLE) / nullif(n, 0) / {FIXED_POINT}::DOUBLE",
        "count": "n",
        "last_seen": "success.completed_us",
        "failures_since_success": "coalesce(failures, 0)",
        "last_hardware_type": "success.hardware_type",
        "last_trainer_count": "success.trainer_count",
        "last_batch_size": "success.batch_size",
        "mean_log_trainers": _mean("sum_log_trainers", "n"),
        "mean_log_batch": _mean("sum_log_batch", "n_batch"),
        "state": """'[' || n || ',' || sum_x || ',"' || sum_xx || '",' || sum_log_trainers || ',' || n_batch || ','
            || sum_log_batch || ',' || coalesce(success.latest_text, 'null') || ',['
            || coalesce(failures_text, '') || ']]'""",
        "version": f"concat_ws(',', {versions})",
    }
    chosen = ", ".join(f"({features[name]})::{_SQL_TYPES[kind]} AS {name}" for name, kind in FEATURES)
    join_keys = ", ".join(f"keyed.{name}" for name in level.join_keys)
    return f"""
        SELECT {join_keys}, make_timestamptz(stamp_us) AS event_timestamp, {chosen}
        FROM (SELECT *, n * sum_xx - sum_x * sum_x AS spread FROM cumulated)
        JOIN (
            SELECT key, {keys}, {lane_texts}
            FROM (SELECT *, epoch || ':' || partition || ':' AS lane_text FROM lanes) GROUP BY key
        ) AS keyed USING (key)
        LEFT JOIN failing USING (key, stamp_us)
        LEFT JOIN runs AS success ON success.place = latest AND success.succeeded
    """


_SQL_TYPES: Final[Mapping[type, str]] = {float: "DOUBLE", int: "BIGINT", str: "VARCHAR"}


def _mean(total: str, count: str) -> str:
    return f"{total}::DOUBLE / nullif({count}, 0) / {FIXED_POINT}::DOUBLE"


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The only row of the result of `query`."""
    (row,) = connection.execute(query).fetchall()
    return tuple(row)
