"""Spark's Python daemon with this package imported, so that forked workers need not import it.

The imports take a worker seconds, and Spark ends workers that were idle for a minute. Spark runs the daemon as
`python -m snapshot_assets.engine.worker_daemon`, on this machine only: executors elsewhere get the package after their
daemon has started.
"""

import gc
import importlib
import sys
from contextlib import suppress
from pathlib import Path

from snapshot_assets.databases.contract import Access
from snapshot_assets.databases.open import built_in_kinds
from snapshot_assets.engine.task_python import TASK_MODULES

_KINDS = [kind for kind in built_in_kinds() if kind.access is Access.CONNECTION]
_IMPORTS = (
    *TASK_MODULES,
    "snapshot_assets.engine.reading.source",
    "snapshot_assets.storage.local",
    "snapshot_assets.storage.cloud",
    *(f"snapshot_assets.databases.{kind.name}.source" for kind in _KINDS),
    *(driver for kind in _KINDS for driver in kind.drivers),
)


def without_zips(path: list[str]) -> list[str]:
    """Return a module search path without Spark's zips of packages that are also folders of it.

    Modules of a zip have no stored bytecode: each daemon would compile them again. PySpark's own zip is of the
    same release as the installed package, in whose folder it is.
    """
    return [entry for entry in path if not _is_installed(Path(entry), path)]


def _is_installed(file: Path, path: list[str]) -> bool:
    if file.suffix != ".zip" or file.parts[-4:-1] != ("pyspark", "python", "lib"):
        return False
    package = file.parents[3] / file.name.partition("-")[0].removesuffix(".zip")
    return str(file.parents[3]) in path and (package / "__init__.py").is_file()


if __name__ == "__main__":
    gc.disable()  # what is imported lives on
    sys.path[:] = without_zips(sys.path)
    from pyspark import daemon

    for name in _IMPORTS:
        with suppress(ModuleNotFoundError):  # drivers are extras
            importlib.import_module(name)
    gc.freeze()  # a collection in a worker leaves the pages shared
    gc.enable()
    daemon.manager()
