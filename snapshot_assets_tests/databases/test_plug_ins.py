"""Databases that other packages register: found by their entry points, and refused where they do not fit."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import snapshot_assets
from snapshot_assets.catalog.schemas import describe_schema
from snapshot_assets.databases import open as opening
from snapshot_assets.databases.contract import CONTRACT, alias_of
from snapshot_assets.databases.convert.schema import converted
from snapshot_assets.databases.duckdb.source import DuckDBDatabase
from snapshot_assets.databases.open import (
    BUILT_IN,
    GROUP,
    built_in_kinds,
    default_alias,
    kind_named,
    kind_of,
    modules_of,
    open_database,
    open_target,
)
from snapshot_assets.databases.protocol.source import AllRows, Database, DatabaseAddress, Scan, Selection
from snapshot_assets.errors import DatabaseError, UnknownSourceError, foreign_text
from snapshot_assets.format.documents import parse_json
from snapshot_assets.format.names import NameRule, rule_of
from snapshot_assets.format.relations import DatabaseSchema, Table

Install = Callable[..., None]

PACKAGE = Path(snapshot_assets.__file__).parent
WORKING = """
from snapshot_assets.databases.contract import DatabaseKind
KIND = DatabaseKind(contract={contract}, name="{name}", title="Papyrus", form="papyrus:///roll", target={target})
def default_alias(uri): return "roll"
def open(address): raise AssertionError
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution whose module has a source text, under names of the group."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(module: str, text: str, *names: str, distribution: str = "papyrus-snapshots") -> None:
        (tmp_path / f"{module}.py").write_text(text)
        metadata = tmp_path / f"{distribution.replace('-', '_')}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        lines = [f"{name} = {module}" for name in names]
        (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
        monkeypatch.delitem(sys.modules, module, raising=False)

    opening._plug_in.cache_clear()
    yield make
    opening._plug_in.cache_clear()


def made_file(folder: Path) -> DatabaseAddress:
    duckdb.connect(str(folder / "a.duckdb")).close()
    return DatabaseAddress("a", f"duckdb://{folder}/a.duckdb")


def text_of(contract: int = CONTRACT, name: str = "papyrus", *, target: bool = False) -> str:
    return WORKING.format(contract=contract, name=name, target=target)


def test_an_installed_package_adds_a_kind_by_each_of_its_schemes(install: Install) -> None:
    install("papyrus_one", text_of(), "papyrus", "scroll")
    assert kind_of("papyrus:///a") is kind_of("SCROLL:///a") is kind_named("papyrus")
    assert default_alias("scroll:///a") == "roll"
    assert modules_of("scroll:///a") == ("papyrus_one",)
    with pytest.raises(UnknownSourceError, match="is a Papyrus, into which nothing can be restored"):
        open_target(DatabaseAddress("old", "papyrus:///a"))
    with pytest.raises(UnknownSourceError, match=r"found one with other:.*duckdb:///.*papyrus:…, scroll:…"):
        kind_of("other:///a")


def test_a_name_with_capitals_is_found_by_its_scheme(install: Install) -> None:
    install("papyrus_six", text_of(name="Papyrus"), "Papyrus")
    assert kind_of("papyrus:///a") is kind_named("Papyrus")


def test_a_missing_driver_without_a_requirement_is_named_for_pip(install: Install) -> None:
    text = text_of().replace(", target=", ", drivers=('quill.reed',), target=")
    install("papyrus_seven", text, "papyrus")
    with pytest.raises(UnknownSourceError, match="pip install 'quill'"):
        open_database(DatabaseAddress("old", "papyrus:///a"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import a_module_that_is_not_there", "cannot be imported: ModuleNotFoundError: .*a_module_that_is_not_there"),
        ("", "has no KIND; this package has contract 1"),
        ("KIND = 'papyrus'", "has no KIND; this package has contract 1"),
        (text_of(contract=7), "is written for contract 7; this package has contract 1"),
        (text_of(target=True), "lacks open_target, scratch, define, rename, type_for, adapt"),
        (text_of(name="duckdb"), "has a KIND named 'duckdb', which is not registered for it"),
        (text_of(name="another"), "has a KIND named 'another', which is not registered for it"),
    ],
)
def test_a_plug_in_that_does_not_fit_is_refused_with_its_distribution(install: Install, text: str, found: str) -> None:
    install("papyrus_two", text, "papyrus")
    with pytest.raises(UnknownSourceError, match=rf"plug-in of papyrus-snapshots 1\.2 \(papyrus_two\) {found}"):
        kind_of("papyrus:///a")


@pytest.mark.parametrize("alias", ["papyrus://reader:secret@host/roll", "", "größe", "x" * 101, None])
def test_an_alias_that_may_have_a_password_is_refused_and_not_shown(install: Install, alias: str) -> None:
    install("papyrus_eight", text_of().replace('"roll"', repr(alias)), "papyrus")
    with pytest.raises(UnknownSourceError, match=r"papyrus: default_alias\(\) of its plug-in") as caught:
        default_alias("papyrus://reader:secret@host/roll")
    assert "secret" not in str(caught.value)


def test_any_name_makes_an_alias() -> None:
    names = ["shop", "größe 1", "2024", "", "a/b:c@d", "x" * 200]
    assert [alias_of(name) for name in names] == ["shop", "gr_e_1", "_2024", "_", "a_b_c_d", "x" * 100]


def test_a_source_has_defaults_for_what_it_need_not_have(tmp_path: Path) -> None:
    table = Table(schema_name="s", name="t", columns=())
    selection, scan = Selection(tables=(table.table_name,)), Scan(table, AllRows())
    with closing(DuckDBDatabase(made_file(tmp_path))) as database:
        assert Database.spelled(database, selection) is selection
        assert Database.split(database, scan, 3) == [scan]
        assert Database.divide(database, scan, 3) == []
        assert Database.unanalyzed(database, scan) is None
        assert Database.count_rows(database, [(table, [AllRows()])] * 2, thorough=True) == [None, None]
        with pytest.raises(DatabaseError, match=r"Rows of duckdb are not divided by a column\. Leave split_by out"):
            Database.quantiles(database, scan, "c", 2)


def test_a_source_that_lacks_methods_cannot_be_made_and_they_are_named() -> None:
    class Lacking(Database):
        kind = "papyrus"

    with pytest.raises(TypeError, match=r"Lacking.* hold, interrupt, scan"):
        Lacking()  # type: ignore[abstract]


def test_an_error_of_other_code_is_shown_with_its_full_class_and_place() -> None:
    class QuillError(Exception):
        pass

    def scan() -> None:
        raise QuillError("ink")

    with pytest.raises(QuillError) as caught:
        scan()
    line = scan.__code__.co_firstlineno + 1
    name = f"{__name__}.{QuillError.__qualname__}"
    assert foreign_text(caught.value) == f"{name}: ink (in scan, databases/test_plug_ins.py:{line})"


def test_two_packages_with_one_scheme_are_both_named(install: Install) -> None:
    install("papyrus_three", text_of(), "papyrus")
    install("papyrus_four", text_of(), "papyrus", distribution="other-papyrus")
    both = r"papyrus: is registered by other-papyrus 1\.2 .* and papyrus-snapshots 1\.2 .*Uninstall all but one"
    with pytest.raises(UnknownSourceError, match=both):
        kind_of("papyrus:///a")


def test_no_package_replaces_a_kind_of_this_one_and_none_needs_installed_metadata(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("papyrus_five", text_of(name="duckdb"), "duckdb")
    monkeypatch.delattr(opening, "entry_points")  # reading all metadata takes 10 ms and more
    assert kind_of("duckdb:///a").title == "DuckDB"
    assert {kind.name for kind in built_in_kinds()} == {kind_of(f"{name}:").name for name in BUILT_IN}


def test_the_package_registers_its_own_kinds_like_any_other() -> None:
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    assert settings["project"]["entry-points"][GROUP] == BUILT_IN
    assert {kind.contract for kind in built_in_kinds()} == {CONTRACT}


def test_a_kind_is_known_without_arrow_and_drivers() -> None:
    code = f"""if True:
        import sys
        from snapshot_assets.databases.open import kind_of
        for name in {list(BUILT_IN)}:
            kind_of(name + ":")
        print(sorted({{"pyarrow", "duckdb", "pyspark", "adbc_driver_postgresql"}} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_no_module_outside_the_databases_asks_for_a_kind_by_its_name() -> None:
    words = {"spark"}  # the engine, whose settings and checks have its name
    about_one = {"engine/reading/duckdb_tables.py"}  # DuckDB reads files there
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "databases" and str(path.relative_to(PACKAGE)) not in about_one
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in BUILT_IN.keys() - words
    ]
    assert [each for each in found if not each.startswith("format/names.py")] == []


def test_documents_of_a_kind_whose_plug_in_is_missing_are_read_and_converted() -> None:
    column = {"name": "A", "type": "REED", "arrow_type": "int64"}
    table = Table.model_validate({"schema": "s", "name": "t", "columns": [column]})
    schema = DatabaseSchema(database="papyrus", names="case_ignored", tables=(table,))
    documents = [parse_json(data, path) for path, data in describe_schema(schema)[1].items()]
    assert [each["names"] for each in documents] == ["case_ignored"] * 3
    assert rule_of(schema) is NameRule.CASE_IGNORED
    assert rule_of(DatabaseSchema(database="papyrus")) is NameRule.EXACT
    mapped, lost = converted(schema, "duckdb", opening.target_module(DatabaseAddress("new", "duckdb:///a.duckdb")))
    assert (mapped.tables[0].columns[0].type, lost) == ("BIGINT", ())
    with pytest.raises(UnknownSourceError, match=rf"found one with papyrus:.*registers it under {GROUP}"):
        open_target(DatabaseAddress("old", "papyrus:///a"))
