"""Conformance suites for databases: what every source and every target must do.

`SourceSuite` and `TargetSuite` are classes of pytest tests. To run them on a database, inherit from them, and define a
fixture `example` that yields an `ExampleDatabase`: an empty database, a way to run statements in it, and a table of its
types. They need pytest, which this package does not install, and belong to the contract of plug-ins
(`databases.contract`), whose version they compare. They are inherited, and no plug-in of pytest: that would be loaded
by each run of pytest in an environment that has this package.

| module | what it holds |
| --- | --- |
| `example` | `ExampleDatabase`: what a database gives the suites |
| `restores` | copies databases through the protocols of sources and targets, without files |
| `source_suite` | `SourceSuite`: windows, parts, counts, held states, types |
| `target_suite` | `TargetSuite`: loads, replacements, the ledger, steps, a whole copy |
"""

import pytest

# Failed assertions of the suites show their values, as those of test modules do.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("restores", "source_suite", "target_suite")))
