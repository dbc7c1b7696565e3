"""Accounts of which the sum is constant, while money is transferred between them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from snapshot_assets.databases.mysql.session import MysqlConnection
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.errors import DatabaseUnavailableError
from snapshot_assets_tests.servers.mariadb import MariadbServer

ACCOUNTS, TABLES = 50, ("cash", "savings", "loans")


def make_accounts(server: MariadbServer, more: str = "") -> None:
    """Make the tables of accounts in `shop`, with 1000 in each account; `more` are further columns."""
    for table in TABLES:
        made = f"CREATE TABLE {table} (id int PRIMARY KEY, money int) AS SELECT seq AS id, 1000 AS money{more}"
        server.sql(f"{made} FROM seq_1_to_{ACCOUNTS}", database="shop")


def sessions(server: MariadbServer) -> list[str]:
    """Return the server's own numbers of all other clients' sessions."""
    listed = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'"
    return [each for each in server.sql(listed).split("\n") if each]


@contextmanager
def transferring(uri: str) -> Iterator[None]:
    """Transfer money between accounts of several tables, in transactions, until the context ends."""
    stop = threading.Event()

    def transfer(seed: int) -> int:
        choose, done = random.Random(seed), 0
        with closing(MysqlConnection(DatabaseAddress("shop", uri))) as writer:
            while not stop.is_set():
                amount = choose.randint(1, 100)
                writer.execute("BEGIN", "transferring")
                for sign in (amount, -amount):
                    table, account = choose.choice(TABLES), choose.randint(1, ACCOUNTS)
                    try:
                        writer.execute(
                            f"UPDATE {table} SET money = money + {sign} WHERE id = {account}", "transferring"
                        )
                    except DatabaseUnavailableError:  # a deadlock has rolled it back
                        break
                else:
                    writer.execute("COMMIT", "transferring")
                    done += 1
        return done

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(transfer, seed) for seed in range(3)]
        try:
            yield
        finally:
            stop.set()
        assert all(each.result() for each in writers)
