"""Examples at the end of each command's `--help`. A test parses every one."""

from __future__ import annotations

_AT = "--plan shop"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "init": (
        "init --source 'postgresql://reader:${SHOP_PASSWORD}@db/shop' --to s3://backups/shop",
        "init --source duckdb:///data/flights.duckdb --to file:///srv/snapshots/flights --output flights.yaml",
    ),
    "doctor": ("doctor", "doctor --plan shop --json", "doctor --source duckdb:///data/flights.duckdb --no-spark"),
    "warm-up": ("warm-up",),
    "plan show": ("plan show shop", "plan show shop --json"),
    "copy": (
        "copy public.orders --source shop --to s3://lake/orders",
        "copy 'SELECT * FROM orders WHERE total > 10' --source shop --to file:///tmp/orders --format csv --header",
    ),
    "export create": (
        "export create --plan shop",
        "export create --source shop --to s3://backups/shop --start-time 2025-01-01T00:00:00Z --chunk-time-window 7d",
        "export create --plan shop --replace 2025-01-31T00:00:00Z/2025-02-01T00:00:00Z",
    ),
    "export list": ("export list --location s3://backups",),
    "export verify": (
        f"export verify {_AT}",
        f"export verify {_AT} --sample 5%",
        "export verify --snapshot s3://backups/shop --depth quick --json",
    ),
    "export delete": (f"export delete {_AT}", f"export delete {_AT} --yes --with-tags"),
    "export diff": (f"export diff {_AT} --from tag:january --to head",),
    "status": (
        f"status {_AT}",
        "status --snapshot s3://second/shop --max-age 26h",
        f"status {_AT} --format openmetrics",
    ),
    "replicate": (
        f"replicate {_AT} --to s3://second/shop",
        f"replicate {_AT} --to file:///mnt/shop --only tag:january",
    ),
    "catalog promote": ("catalog promote --snapshot s3://second/shop",),
    "import": (
        "import --plan shop --dry-run",
        "import --from s3://backups/shop --target 'postgresql://owner@db/restored' --verify-first",
        "import --from s3://backups/shop --target duckdb:///tmp/shop.duckdb --at tag:january --tables public.orders",
    ),
    "tag create": (f"tag create january {_AT}", f"tag create audit {_AT} --at rev:12 --time-retained 365d"),
    "tag list": (f"tag list {_AT}",),
    "tag delete": (f"tag delete january {_AT} --dry-run",),
    "tag rename": (f"tag rename january january-2025 {_AT}",),
    "tag replace": (f"tag replace latest-good {_AT} --at rev:14",),
    "tag hold": (f"tag hold january {_AT} --reason 'case 2025/17' --by legal@example.com",),
    "tag release": (f"tag release january {_AT} --reason 'case 2025/17 is closed'",),
    "tag exists": (f"tag exists january {_AT}",),
    "savepoint create": (f"savepoint create {_AT}",),
    "savepoint list": (f"savepoint list {_AT}",),
    "savepoint delete": (f"savepoint delete 3 {_AT}",),
    "catalog log": (f"catalog log {_AT} --limit 10",),
    "catalog show": (f"catalog show {_AT}", f"catalog show {_AT} --at tag:january --files"),
    "catalog table": (f"catalog table files {_AT} --json", f"catalog table diff {_AT} --since rev:3"),
    "catalog checkpoint": (f"catalog checkpoint {_AT}",),
    "catalog gc": (f"catalog gc {_AT} --dry-run", f"catalog gc {_AT} --yes --grace 7d"),
    "catalog prune": (f"catalog prune {_AT} --dry-run",),
    "catalog expire": (
        "catalog expire --plan shop --dry-run",
        "catalog expire --snapshot s3://backups/shop --keep-daily 7 --keep-monthly 12 --yes",
    ),
    "catalog rollback": (f"catalog rollback tag:january {_AT}",),
    "catalog tombstone": (f"catalog tombstone {_AT} --table public.users --where \"email = 'a@example.com'\"",),
    "catalog compact": (f"catalog compact {_AT} --dry-run", f"catalog compact {_AT} --table public.orders"),
    "catalog rebuild": (f"catalog rebuild {_AT} --dry-run",),
    "catalog repair": (f"catalog repair {_AT} --dry-run",),
    "catalog upgrade": (f"catalog upgrade {_AT} --dry-run",),
}
"""Examples by command, without the program's name, as a shell reads them."""
