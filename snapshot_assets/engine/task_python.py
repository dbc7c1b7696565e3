"""The Python of a Spark task: its interpreter, and what it lacks of what tasks import.

Executors import this module where nothing else of the package can be imported, so it needs the standard library only.
"""

from __future__ import annotations

import importlib
import json
import socket
import sys
from dataclasses import asdict, dataclass

TASK_MODULES = (
    "snapshot_assets.engine.export.tasks",
    "snapshot_assets.engine.files.write",
)
"""Modules that every task of an export imports."""
TASK_PACKAGES = ("google.protobuf.message", "numpy", "pandas", "pyarrow", "pydantic")
"""Modules of other packages that every task needs; PySpark needs pandas for Arrow without declaring it.

One of `google.protobuf` itself is not enough: jars on the path of executors have a folder of that name.
"""


@dataclass(frozen=True)
class TaskPython:
    """The interpreter that runs a task.

    Attributes:
        path: Path of the interpreter.
        version: Its version.
        host: Name of its machine.
        lacks: What failed to be imported: names of modules that are missing, else the errors.
    """

    path: str
    version: str
    host: str
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the interpreter as messages name it."""
        return f"{self.path} (Python {self.version}) on {self.host}"

    @classmethod
    def parse(cls, text: str) -> TaskPython:
        """Return what `describe_python` described."""
        found = json.loads(text)
        return cls(**{**found, "lacks": tuple(found["lacks"])})


def describe_python(modules: str) -> str:
    """Import modules, whose names are JSON, in this process, and return its `TaskPython` as JSON."""
    errors = [error for name in json.loads(modules) if (error := _import_error(name)) is not None]
    version = ".".join(map(str, sys.version_info[:3]))
    return json.dumps(asdict(TaskPython(sys.executable, version, socket.gethostname(), tuple(dict.fromkeys(errors)))))


def _import_error(name: str) -> str | None:
    """Import a module; return the name of the one that is missing, or the error of an installation that is broken."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return error.name or str(error)
    except Exception as error:
        return f"{name} ({type(error).__name__}: {error})"
    return None
