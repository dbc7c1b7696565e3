"""The table of commands, each with its options, in the order of the help. Importing it imports nothing heavy."""

from __future__ import annotations

from snapshot_assets.cli.options.common import Command, flag, location, option, signers
from snapshot_assets.cli.options.export_and_import import (
    VERSIONS,
    DatabaseOption,
    changed,
    chunks,
    compare,
    copy,
    count,
    create,
    depth,
    import_,
    query,
    sign,
    tables,
)

_DRY_RUN = flag("--dry-run", "print what the command would do, change nothing")
_YES = flag("--yes", "do not ask for a confirmation")
_SINGLE_WRITER = flag(
    "--single-writer", "promise that no other writer uses the location, for stores without conditional creates"
)
_JSON = flag("--json", "print one JSON document on stdout")
_SPARK = (
    option(
        "--spark-master",
        "URL",
        "Spark's master: local[4], spark://host:7077, yarn, … (default: the configuration's, else local[*,4])",
    ),
    option("--spark-remote", "URL", "a Spark Connect server in place of a master: sc://host:15002"),
)
_RECORDED = (
    option(
        "--dagster-home",
        "FOLDER",
        "folder of the Dagster instance that records the run (default: DAGSTER_HOME, else none records it)",
    ),
    *_SPARK,
)
_MOVES = (*_RECORDED, _JSON)
_READS = (location(), _JSON)
_WRITES = (_SINGLE_WRITER, *_READS)
_PLANS = (_DRY_RUN, *_WRITES)
_ASKS = (_YES, *_PLANS)

_SOURCE = "postgresql://…, mysql://…, duckdb:///abs/path.duckdb, spark:<catalog>, or a scheme of a plug-in"
_AT = option("--at", "VERSION", f"{VERSIONS} (default: head)")
_TAG = option("name", "NAME", "the tag: a letter or _, then letters, digits, _ . -")
_PIN = (
    _TAG,
    option("--at", "VERSION", f"{VERSIONS} (default: newest seal)"),
    option("--time-retained", "D", "how long the tag lives from now: 12h, 90d, … (default: until it is deleted)"),
)
_HOLD = (
    _TAG,
    option("--reason", "TEXT", "why; the log keeps it", required=True),
    option("--by", "WHO", "who, if not this writer: package, user@host and process"),
)
_GRACE = (
    option("--grace", "D", "delete only objects older than this: 24h, 7d, … (default: the plan's grace)"),
    flag("--unsafe", "accept a shorter grace than the plan's: no writer may be active"),
)

_PERIODS = {"daily": "days", "weekly": "ISO weeks", "monthly": "months", "yearly": "years"}

GROUPS = {
    "plan": "show plans of the configuration",
    "export": "create, list, verify and delete snapshots",
    "tag": "name sealed revisions; a tagged revision stays readable",
    "savepoint": "compact a snapshot and keep it under a number",
    "catalog": "inspect and maintain a location's log and storage",
}

COMMANDS = {
    "init": Command(
        "setup.init:run",
        "write a configuration with a plan that fits a database",
        option(
            "--source",
            "URI",
            f"{_SOURCE}; write a password as a variable, such as ${{SHOP_PASSWORD}}, which the environment has",
            required=True,
        ),
        option("--to", "URI", "location: s3://bucket/prefix, file:///abs/path, …", required=True),
        option("--name", None, "name of the plan (default: last segment of the location)"),
        option(
            "--kind",
            None,
            "once: a fixed range (default); continuous: all closed windows, as for a nightly export",
            choices=("once", "continuous"),
            default="once",
        ),
        option(
            "--output",
            "FILE",
            "file to write, which must not exist (default: that of --config, $SNAPSHOTS_CONFIG or snapshots.yaml)",
        ),
        _JSON,
    ),
    "doctor": Command(
        "setup.doctor:run",
        "check all that an export needs; name each remedy",
        location(
            "--to", plan="check what this plan needs (default: all plans)", snapshot="check a location without a plan"
        ),
        option("--source", "URI", f"check a database without a plan: {_SOURCE}", action=DatabaseOption),
        flag("--no-spark", "start no Spark session, which takes seconds"),
        *_MOVES,
    ),
    "warm-up": Command("setup.warm_up:run", "archive Spark's classes here, so that Spark starts sooner", _JSON),
    "plan show": Command(
        "setup.show_plan:run",
        "show what a plan would export, where and how",
        option("name", "NAME", "a plan of the configuration"),
        _JSON,
    ),
    "copy": Command("copy:run", "copy a query's rows to object storage as Parquet, CSV or JSON", copy, *_MOVES),
    "export create": Command(
        "export.create:run", "export a database, or resume an unfinished snapshot", create, *_MOVES
    ),
    "export changed": Command(
        "export.changed:run", "show what changed in the source since it was exported", changed, *_SPARK, _JSON
    ),
    "export list": Command(
        "export.snapshots:list_",
        "list the snapshots at or below a location",
        location("--location", snapshot="a location, or a folder one or two levels above several"),
        _JSON,
    ),
    "export verify": Command(
        "export.snapshots:verify", "check a snapshot and name every fault", _AT, depth, signers, *_READS
    ),
    "export delete": Command(
        "export.snapshots:delete",
        "delete a snapshot and everything it wrote",
        flag("--with-tags", "also if tags or savepoints pin it"),
        _YES,
        *_WRITES,
    ),
    "export diff": Command(
        "export.snapshots:diff",
        "show what changed from one version to another",
        option("--from", "VERSION", VERSIONS, dest="first", required=True),
        option("--to", "VERSION", VERSIONS, dest="second", required=True),
        *_READS,
    ),
    "compare": Command(
        "compare:run", "compare a snapshot with its database by value; name what is damaged", compare, *_SPARK, _JSON
    ),
    "sql": Command("sql:run", "ask a snapshot a question in SQL, without a restore", query, signers, location()),
    "status": Command(
        "status:run",
        "show the age of the newest backup and what it needs; reads no data",
        option("--max-age", "D", "exit with 3 if the newest sealed export is older than this: 26h, 8d, …"),
        option(
            "--format",
            None,
            "openmetrics prints metrics for Prometheus (default: text)",
            choices=("text", "openmetrics"),
            default="text",
        ),
        signers,
        *_READS,
    ),
    "sign": Command(
        "export.snapshots:sign",
        "sign the newest seal, if it is not signed; see the section signing of the configuration",
        sign,
        *_READS,
    ),
    "iceberg": Command(
        "export.iceberg:run",
        "write Iceberg metadata, by which other engines read sealed revisions in place",
        option("--at", "VERSION", f"what readers see by default; {VERSIONS} (default: newest seal)"),
        option(
            "--tables",
            "s.t,…",
            "only these tables (default: the plan's iceberg.tables, else all)",
            type=tables,
            default=[],
        ),
        *_READS,
    ),
    "import": Command(
        "import_:run", "restore a snapshot into a database, or resume an interrupted import", import_, *_MOVES
    ),
    "replicate": Command(
        "replicate:run",
        "copy a location to a second store, or what it lacks there; verified, byte for byte",
        location(
            plan="a plan of the configuration: its location and its replicate_to",
            snapshot="the location that is copied",
        ),
        option(
            "--to",
            "URI",
            "the replica: an empty location, or an earlier replica (default: the plan's replicate_to); the"
            " section storage.locations of the configuration has credentials by bucket",
        ),
        option(
            "--only",
            "VERSION",
            f"copy only the head and this version, and those chosen before; repeat it for more: {VERSIONS}",
            action="append",
            default=[],
        ),
        flag(
            "--delete",
            "delete from the replica what the source has deleted (default: the plan's replicate_delete, else keep it)",
        ),
        flag(
            "--accept-loss",
            "follow a source that lost what the replica still has, by a rebuild for example (default: refuse it)",
        ),
        _DRY_RUN,
        _SINGLE_WRITER,
        _JSON,
    ),
    "tag create": Command(
        "pins:create", "name a sealed revision; an equal tag that exists stays as it is", *_PIN, *_WRITES
    ),
    "tag list": Command("pins:list_tags", "list the tags by commit time of the revisions that they name", *_READS),
    "tag delete": Command(
        "pins:delete_tag", "delete a tag; garbage collection deletes what nothing else needs", _TAG, *_ASKS
    ),
    "tag rename": Command(
        "pins:rename",
        "give a tag another name; it lives as long as before",
        option("name", "OLD", "the tag: a letter or _, then letters, digits, _ . -"),
        option("new_name", "NEW", "a name that no tag has"),
        *_WRITES,
    ),
    "tag replace": Command(
        "pins:replace", "let a tag name another revision, or give it a new time to live", *_PIN, *_ASKS
    ),
    "tag hold": Command(
        "pins:hold", "put a tag under legal hold: no rule and no command removes it until its release", *_HOLD, *_WRITES
    ),
    "tag release": Command("pins:release", "end the legal hold on a tag; the tag stays", *_HOLD, *_WRITES),
    "tag exists": Command("pins:exists", "print whether there is a tag; exit status 5 if not", _TAG, *_READS),
    "savepoint create": Command(
        "catalog.compact:create_savepoint",
        "compact everything, leave deleted rows out, and keep the result",
        *_RECORDED,
        *_PLANS,
    ),
    "savepoint list": Command(
        "pins:list_savepoints", "list the savepoints by commit time of the revisions that they keep", *_READS
    ),
    "savepoint delete": Command(
        "pins:delete_savepoint",
        "delete a savepoint; garbage collection deletes what nothing else needs",
        option("id", "ID", "the savepoint's number", type=count),
        *_ASKS,
    ),
    "catalog log": Command(
        "catalog.log:run",
        "list revisions, newest first: what changed, when and by whom",
        option("--limit", "N", "most revisions to list (default: all)", type=count),
        option("--since", "REV", "this revision and later ones", type=count, default=1),
        *_READS,
    ),
    "catalog show": Command(
        "catalog.show:show_state",
        "show a state: chunks, tables, tags, seals, and the size of the log",
        _AT,
        flag("--files", "list the data files too"),
        *_READS,
    ),
    "catalog table": Command(
        "catalog.show:table",
        "show a metadata table, such as tags for Spark's $tags",
        option("table", None, None, choices=("snapshots", "tags", "savepoints", "chunks", "files", "diff")),
        option("--at", "VERSION", f"of chunks, files and diff; {VERSIONS} (default: head)"),
        option("--since", "VERSION", "of diff: the first version"),
        *_READS,
    ),
    "catalog checkpoint": Command(
        "catalog.maintain:checkpoint", "write a checkpoint of the newest state, to open it faster", *_WRITES
    ),
    "catalog gc": Command(
        "catalog.retention:gc",
        "delete objects that no sealed revision, tag or writer needs",
        flag("--versions", "delete old versions of what was deleted or replaced, where the bucket keeps them"),
        *_GRACE,
        *_ASKS,
    ),
    "catalog prune": Command(
        "catalog.maintain:prune", "delete the oldest part of the log, which a checkpoint contains", *_GRACE, *_ASKS
    ),
    "catalog expire": Command(
        "catalog.retention:expire",
        "expire old sealed revisions, and tags past their retention",
        location(
            plan="a plan of the configuration: its location, and its rules of revisions and of automatic tags",
            snapshot="the snapshot's location; without a rule only tags end",
        ),
        option(
            "--keep-last",
            "N",
            "keep the newest N sealed revisions; an option takes the place of the plan's rules of revisions",
            type=count,
        ),
        option("--keep-for", "D", "keep what was sealed within this time: 12h, 30d, …"),
        *(
            option(
                f"--keep-{period}",
                "N",
                f"keep the newest sealed revision of each of the newest N {unit}, in UTC",
                type=count,
            )
            for period, unit in _PERIODS.items()
        ),
        flag(
            "--unsafe",
            "with --yes, accept a --keep-for that is shorter than the plan's grace, so that nearly everything expires",
        ),
        _YES,
        _DRY_RUN,
        _SINGLE_WRITER,
        _JSON,
    ),
    "catalog rollback": Command(
        "catalog.changes:rollback",
        "restore the data of an older version as the newest state",
        option("version", "VERSION", VERSIONS),
        flag("--undelete", "also if deleted rows come back"),
        flag("--discard-newer", "also expire all newer revisions"),
        *_ASKS,
    ),
    "catalog tombstone": Command(
        "catalog.changes:tombstone",
        "delete the rows of a predicate; older versions keep them",
        option("--table", "s.t", "the table", required=True),
        option(
            "--where",
            "PREDICATE",
            "which rows: \"level < 3 and (name = 'x' or name is null)\"; = != < <= > >= in, is null, and, or, not",
            required=True,
        ),
        *_ASKS,
    ),
    "catalog compact": Command(
        "catalog.compact:run",
        "merge small files, and rewrite files without deleted rows",
        option(
            "--table", "s.t,…", "compact only these tables, whole (default: what needs it)", type=tables, default=[]
        ),
        option(
            "--chunk", "N,…", "compact only these chunks, whole (default: those that need it)", type=chunks, default=[]
        ),
        option("--target-size", "SIZE", "size of a merged file (default: 256MiB)"),
        option("--dedupe", None, "keep only the newest row of each primary key", choices=("primary_key",), default=""),
        *_RECORDED,
        *_PLANS,
    ),
    "catalog extend-locks": Command(
        "catalog.locks:extend", "lock what is needed for as long again as the option lock says", _DRY_RUN, *_READS
    ),
    "catalog promote": Command(
        "replicate:promote",
        "make a replica a location of its own",
        flag("--incomplete", "accept a log that was not copied to its end; rebuild it then"),
        option(
            "--release",
            "NAME",
            "give up this held tag, which a replica of chosen versions lacks; repeat it for more",
            action="append",
            default=[],
        ),
        *_ASKS,
    ),
    "catalog rebuild": Command(
        "catalog.maintain:rebuild",
        "rebuild a lost or damaged log, and report what is lost",
        flag("--accept-undeleted", "accept that deleted rows and replaced chunks may come back"),
        flag("--from-files", "use data files in place of lost receipts"),
        *_PLANS,
    ),
    "catalog recover": Command(
        "catalog.recover:run",
        "bring back what an attacker hid or replaced, from the versions that the bucket keeps",
        option("--before", "TIME", "the state at this time: 2025-01-31T00:00:00Z", required=True),
        option("--to", "URI", "an empty location, which gets everything (default: the location itself)"),
        *_ASKS,
    ),
    "catalog repair": Command(
        "catalog.maintain:repair", "write damaged hints, receipts, checkpoints and pins again from the log", *_PLANS
    ),
    "catalog upgrade": Command(
        "catalog.maintain:upgrade",
        "raise the format version; older releases cannot read it then",
        option("--to", "N", "format version (default: the newest)", type=count),
        *_PLANS,
    ),
}
