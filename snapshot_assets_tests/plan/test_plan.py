import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_assets.databases.protocol.source import Selection
from snapshot_assets.errors import PlanError
from snapshot_assets.format.relations import Carrier, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.options import StoreOptions

START, END = datetime(2013, 1, 1, tzinfo=UTC), datetime(2014, 1, 1, tzinfo=UTC)
PASSWORD = "hunter2hunter2"


def _plan(**fields):
    return Plan(**{"name": "demo", "source": "flights", "to": "s3://backups/demo"} | fields)


def _problems(**fields):
    with pytest.raises(PlanError) as caught:
        _plan(**fields)
    return {".".join(problem.path): problem.message for problem in caught.value.attributes["problems"]}


def test_a_plan_needs_a_name_a_source_and_a_location():
    plan = _plan()
    assert (plan.name, plan.source.alias, plan.to) == ("demo", "flights", "s3://backups/demo")
    assert plan.chunk_time_window == timedelta(days=1)
    assert plan.max_file_size == 256 << 20
    assert plan.grace == timedelta(hours=24)
    assert plan.kind == "once"


def test_fields_are_written_as_people_write_them():
    plan = _plan(
        start_time="2013-01-01T01:00:00+01:00",
        end_time="2014-01-01T00:00:00Z",
        chunk_time_window="7d",
        max_file_size="64MB",
        schemas=["public", "a.b"],
        tables=["public.trips", '"a.b"."c.d"', {"schema": "public", "table": "zones"}],
        time_columns={"public.trips": "at", "public.zones": None},
        carriers={"public.trips.fare": "text"},
        time_zone="Europe/Paris",
    )
    assert (plan.start_time, plan.end_time) == (START, END)
    assert plan.chunk_time_window == timedelta(days=7)
    assert plan.max_file_size == 64 << 20
    assert plan.selection == Selection(
        schemas=("a.b", "public"),
        tables=(TableName("a.b", "c.d"), TableName("public", "trips"), TableName("public", "zones")),
        time_columns={TableName("public", "trips"): "at", TableName("public", "zones"): None},
        carriers={(TableName("public", "trips"), "fare"): Carrier.TEXT},
    )


def test_a_plan_is_read_back_from_its_json():
    plan = _plan(
        start_time=START,
        end_time=END,
        tables=['"a.b".c'],
        time_columns={'"a.b".c': "at"},
        carriers={'"a.b".c.d': "text"},
    )
    document = plan.model_dump(mode="json")
    assert Plan(**document) == Plan(**dict(reversed(document.items()))) == plan
    assert (document["start_time"], document["chunk_time_window"]) == ("2013-01-01T00:00:00Z", "1d")
    assert (document["tables"], document["time_columns"]) == (['"a.b".c'], {'"a.b".c': "at"})
    assert (document["max_file_size"], document["carriers"]) == ("256MiB", {'"a.b".c.d': "text"})


def test_the_same_selection_in_another_order_is_the_same_plan():
    assert _plan(schemas=["b", "a", "b"], tables=["b.x", "a.y"]) == _plan(schemas=["a", "b"], tables=["a.y", "b.x"])


def test_a_plan_is_immutable():
    with pytest.raises(ValueError, match="frozen"):
        _plan().name = "other"


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(PlanError) as caught:
        _plan(
            name="my plan",
            to="/tmp/x",
            kind="twice",
            chunk_time_window="6 h",
            start_time="2013-01-32",
            paralelism=4,
            parallelism=65,
            grace="1s",
        )
    assert str(caught.value).splitlines() == [
        "plan 'my plan' has 8 mistakes:",
        "  name: 'my plan' is not a name; write a letter, then letters, digits and `_`, at most 100 characters",
        "  to: '/tmp/x' is a bare path; write it as a URI: file:///tmp/x",
        "  kind: should be 'once', 'continuous' or 'query', found 'twice'",
        "  start_time: date '2013-01-32' does not exist (day is out of range for month); write one such as 2013-01-01",
        "  chunk_time_window: '6 h' is not a duration; write a whole number and one unit of s, m, h, d, w, "
        "such as 90m, 6h or 7d",
        "  parallelism: should be less than or equal to 64, found 65",
        "  grace: 1s is shorter than 10m, by which the clocks of writers and store may differ",
        "  paralelism: is not a field. Did you mean 'parallelism'?",
    ]


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"name": "9a"}, "name", "write a letter, then"),
        ({"name": "a" * 101}, "name", "at most 100 characters"),
        ({"name": "a\n"}, "name", "is not a name"),
        ({"source": "no alias"}, "source", "neither an alias"),
        ({"source": "oracle://h/d"}, "source", "oracle"),
        ({"target": "flights"}, "target", "is the source itself"),
        ({"to": "s3://bucket"}, "to", "bucket"),
        ({"catalog": ""}, "catalog", "at least 1 character"),
        ({"format": "csv", "iceberg": True}, "iceberg", "Iceberg reads Parquet, not csv; write format: parquet"),
        ({"iceberg": {"tables": ["trips"]}}, "iceberg.tables.0", "is not a schema and a table"),
        ({"schemas": "public"}, "schemas", "should be a list, found 'public'; write such as [public, sales]"),
        ({"tables": ["trips"]}, "tables.0", "is not a schema and a table"),
        ({"dagster": {"table_assets": True}}, "dagster", "table_assets: true needs the names of the tables"),
        ({"dagster": {"table_assets": ["trips"]}}, "dagster.table_assets", "is not a schema and a table"),
        ({"dagster": {"table_assets": "all"}}, "dagster.table_assets", "'all' is neither true nor false"),
        ({"tables": ["a.b"], "dagster": {"table_assets": ["a.c"]}}, "dagster", "a.c"),
        ({"exclude_tables": ["a.*"], "dagster": {"table_assets": ["a.c"]}}, "dagster", "a.c"),
        ({"schemas": ["a"], "tables": ["b.c"]}, "tables", "b.c lies outside schemas [a]; add 'b'"),
        ({"schemas": ["a"], "time_columns": {"b.c": "t"}}, "time_columns", "lies outside schemas"),
        ({"tables": ["a.b"], "time_columns": {"a.c": "t"}}, "time_columns", "a.c is not among tables"),
        ({"tables": ["a.b"], "carriers": {"a.c.d": "text"}}, "carriers", "a.c is not among tables"),
        ({"carriers": {"a.b": "text"}}, "carriers.a.b", "is not a schema, a table and a column"),
        ({"carriers": {"a.b.c": "txt"}}, "carriers.a.b.c", "should be 'native' or 'text', found 'txt'"),
        ({"time_columns": {"a": "t"}}, "time_columns.a", "is not a schema and a table"),
        ({"start_time": datetime(2013, 1, 1)}, "start_time", "has no zone"),
        ({"start_time": "2013-01-01T00:00:00"}, "start_time", "has no zone; append Z"),
        ({"start_time": START, "end_time": START}, "end_time", "is not after start_time 2013-01-01T00:00:00Z"),
        ({"chunk_time_window": "0s"}, "chunk_time_window", "0s is no length"),
        (
            {"start_time": START, "end_time": END, "chunk_time_window": "1m"},
            "chunk_time_window",
            "into 525,600 windows; the most is 100,000; use 10m or longer",
        ),
        ({"kind": "continuous"}, "start_time", "is missing; a continuous plan counts its chunks from it"),
        ({"kind": "continuous", "start_time": START, "end_time": END}, "end_time", "a continuous plan has no end"),
        ({"lag": "5m"}, "lag", "only a continuous plan waits for late rows"),
        ({"time_zone": "Europe/Pariss"}, "time_zone", "Did you mean 'Europe/Paris'"),
        ({"format": "orc"}, "format", "should be 'parquet', 'csv' or 'json', found 'orc'"),
        ({"format_options": {"header": True}}, "format_options", "format is parquet, and only csv has header"),
        ({"format_options": {"compression": "gzip"}}, "format_options", "compression is an option of csv and json"),
        ({"format": "csv", "format_options": {"quote": ","}}, "format_options", "which quote or escape is too"),
        ({"format": "csv", "format_options": {"null": "5"}}, "format_options", "expected a text that is no value"),
        ({"max_file_size": "15MB"}, "max_file_size", "15MiB is not between 16MiB and 4GiB"),
        ({"max_file_size": "256mb"}, "max_file_size", "is not a size"),
        ({"parallelism": 0}, "parallelism", "greater than or equal to 1, found 0"),
        ({"null_time": "drop"}, "null_time", "should be 'chunk0' or 'fail'"),
        ({"grace": "9m"}, "grace", "9m is shorter than 10m"),
        ({"storage": {"endpont": "x"}}, "storage.endpont", "is not a storage option. Did you mean 'endpoint'?"),
        ({"storage": {"endpoint": "http://h"}}, "storage", "allow_http"),
        ({"unheard_of": 1}, "unheard_of", "is not a field"),
    ],
)
def test_a_mistake_is_reported_at_its_field_with_what_would_work(fields, path, message):
    problems = _problems(**fields)
    assert list(problems) == [path]
    assert message in problems[path]


def test_schema_only_refuses_every_option_about_rows_by_name():
    problems = _problems(
        schema_only=True,
        start_time=START,
        end_time=END,
        chunk_time_window="6h",
        parallelism=4,
        max_file_size="64MB",
        time_columns={"a.b": None},
        carriers={"a.b.c": "text"},
        null_time="fail",
        untimed_tables="skip",
        chunks_per_run=3,
    )
    assert set(problems) == {
        *("start_time", "end_time", "chunk_time_window", "parallelism", "max_file_size", "time_columns"),
        *("carriers", "null_time", "untimed_tables", "chunks_per_run"),
    }
    assert set(problems.values()) == {"has no effect with schema_only: true; remove one of the two"}
    assert _plan(schema_only=True, parallelism=None, chunk_time_window="1d", format="parquet").schema_only


@pytest.mark.parametrize("role", ["source", "target"])
def test_a_uri_is_shown_by_alias_only(role):
    plan = _plan(**{"source": "x", role: f"postgresql://reader:{PASSWORD}@db.example.com/shop"})
    for shown in (repr(plan), str(plan), str(plan.model_dump()), plan.model_dump_json(), str(getattr(plan, role))):
        assert PASSWORD not in shown
        assert "reader" not in shown
    assert PASSWORD in getattr(plan, role).uri


def test_storage_secrets_are_shown_nowhere():
    plan = _plan(storage={"access_key_id": "AKID" + PASSWORD, "secret_access_key": PASSWORD})
    for shown in (repr(plan), str(plan.model_dump()), plan.model_dump_json(), str(plan.model_dump(mode="json"))):
        assert PASSWORD not in shown
    assert isinstance(plan.storage, StoreOptions)
    assert plan.storage.secret_access_key == PASSWORD


@pytest.mark.parametrize(
    "fields",
    [
        {"source": f"oracle://u:{PASSWORD}@h/d"},
        {"source": f"host=h password={PASSWORD}"},
        {"source": [PASSWORD]},
        {"to": f"s3://u:{PASSWORD}@bucket/x"},
        {"to": f"https://u:{PASSWORD}@host/x?sig={PASSWORD}"},
        {"storage": PASSWORD},
        {"storage": {"secret_access_key": PASSWORD}},
        {"storage": {"secret_access_key": [PASSWORD], "retries": PASSWORD}},
        {"storage": {"password": PASSWORD}},
        {"password": PASSWORD},
    ],
)
def test_no_mistake_shows_a_secret(fields):
    with pytest.raises(PlanError) as caught:
        _plan(**fields)
    assert PASSWORD not in str(caught.value)
    assert PASSWORD not in repr(caught.value.attributes)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_plan_and_its_error_travel_between_processes():
    with pytest.raises(PlanError) as caught:
        _plan(parallelism=65)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.attributes) == (str(caught.value), caught.value.attributes)
    plan = _plan(source="postgresql://u:p@h/d", storage={"region": "x"}, tables=["a.b"])
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_open_bounds_are_settled_and_written_ones_stay():
    other = datetime(2013, 6, 1, tzinfo=UTC)
    assert _plan().resolved(START, END) == _plan(start_time=START, end_time=END)
    assert _plan(start_time=other).resolved(START, END).start_time == other
    assert _plan(end_time=other).resolved(START, END).end_time == other
    continuous = _plan(kind="continuous", start_time=START)
    assert continuous.resolved(START, END) == continuous
    with pytest.raises(PlanError, match="is not after start_time"):
        _plan(start_time=END).resolved(START, START)


def test_a_changed_plan_keeps_its_other_fields_and_is_checked():
    plan = _plan(source="postgresql://u:p@h/d", storage={"region": "x"}, tables=["a.b"])
    changed = plan.changed(parallelism=4)
    assert changed.parallelism == 4
    assert changed.changed(parallelism=1) == plan.changed(parallelism=1)
    assert changed.source.uri == "postgresql://u:p@h/d"
    with pytest.raises(PlanError, match="parallelism"):
        plan.changed(parallelism=65)


@given(st.dictionaries(st.sampled_from(sorted(Plan.model_fields)), st.none() | st.text(max_size=8) | st.integers()))
def test_any_input_gives_a_plan_or_a_plan_error(fields):
    plan, problems = None, ()
    try:
        plan = Plan(**fields)
    except PlanError as error:
        problems = error.attributes["problems"]
    assert (plan is None) == bool(problems)
    assert plan is None or Plan(**plan.model_dump(mode="json")) == plan
