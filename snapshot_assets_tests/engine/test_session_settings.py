"""The settings of a session that is about to start: ours only where nobody chose others, and where tasks are local."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snapshot_assets.databases.spark.session_zone import TIME_ZONE
from snapshot_assets.engine.session_settings import (
    DEFAULT_JAVA_OPTIONS,
    JAVA_OPTIONS,
    LOCAL_SETTINGS,
    QUIET_SETTINGS,
    driver_settings,
    is_dynamic,
    known_master,
    most_dynamic_tasks,
    session_settings,
    settings_of_environment,
)
from snapshot_assets.engine.session_start import archive_file, session_config, variables_of_start
from snapshot_assets.engine.worker_daemon import without_zips
from snapshot_assets.scratch_folders import process_folder

OURS = {"spark.app.name": "snapshot_assets", TIME_ZONE: "UTC"}
CLUSTERS = ("spark://host:7077", "yarn", "k8s://https://host:443")
VARIABLES = ("SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER")
DAEMON = "spark.python.daemon.module"


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `spark-defaults.conf` that Spark reads, still empty."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / "spark-defaults.conf"
    file.write_text("")
    return file


def test_a_driver_has_its_own_temporary_folder_and_the_archive_of_classes_if_there_is_one(tmp_path: Path) -> None:
    archive, name = tmp_path / "classes.jsa", "spark.driver.defaultJavaOptions"
    assert driver_settings(tmp_path, archive) == {name: f'"-Djava.io.tmpdir={tmp_path}"'}
    archive.touch()
    quiet = '"-Xlog:cds=off" "-Xlog:cds+dynamic=off" "-Xlog:class+path=off"'
    shared = f'"-XX:SharedArchiveFile={archive}" {quiet}'
    assert driver_settings(tmp_path, archive) == {name: f'"-Djava.io.tmpdir={tmp_path}" {shared}'}


def test_a_forked_worker_need_not_import_what_a_task_uses() -> None:
    script = "import sys\nfrom snapshot_assets.engine import worker_daemon as daemon\n"
    script += "[__import__(name) for name in daemon._IMPORTS]\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    used = ("write", "parquet.writer")
    assert {f"snapshot_assets.engine.files.{name}" for name in used} <= {*loaded}


def test_this_machine_gets_our_conveniences() -> None:
    assert session_settings({}) == LOCAL_SETTINGS | QUIET_SETTINGS | OURS
    chosen = {"spark.master": "local[2]", "spark.ui.enabled": "true"}
    assert session_settings(chosen) == LOCAL_SETTINGS | QUIET_SETTINGS | OURS | chosen
    assert {JAVA_OPTIONS, DAEMON} <= session_config({}).keys()


@pytest.mark.parametrize("master", CLUSTERS)
def test_a_cluster_keeps_its_own_settings_and_its_driver_is_as_quiet_as_a_local_one(master: str) -> None:
    chosen = {"spark.master": master}
    assert session_settings(chosen) == QUIET_SETTINGS | OURS | chosen
    quiet = {JAVA_OPTIONS: session_config({})[JAVA_OPTIONS], **QUIET_SETTINGS}
    assert "log4j2.properties" in quiet[JAVA_OPTIONS]
    assert session_config(chosen) == OURS | quiet | driver_settings(process_folder(), archive_file()) | chosen


@pytest.mark.parametrize("master", CLUSTERS)
def test_what_the_user_of_a_cluster_wants_to_see_is_shown(master: str, defaults: Path) -> None:
    defaults.write_text(f"spark.ui.showConsoleProgress true\n{JAVA_OPTIONS} -Dx=y\n")
    assert session_config({"spark.master": master}).keys().isdisjoint({*QUIET_SETTINGS, JAVA_OPTIONS})
    defaults.write_text("")
    chosen = {"spark.master": master, "spark.ui.showConsoleProgress": "true", JAVA_OPTIONS: "-Dx=y"}
    assert session_config(chosen).items() >= chosen.items()
    (defaults.parent / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert JAVA_OPTIONS not in session_config({"spark.master": master})


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"spark.master": "yarn", "maxExecutors": "10", "cores": "4"}, 40),
        ({"spark.master": "k8s://https://host:443", "maxExecutors": "10"}, 10),
        ({"spark.master": "spark://host:7077", "maxExecutors": "10", "cores": "2"}, 20),
        ({"spark.master": "spark://host:7077", "maxExecutors": "10"}, None),
        ({"spark.master": "yarn", "cores": "4"}, None),
    ],
)
def test_dynamic_allocation_counts_the_executors_that_may_come(settings: dict[str, str], tasks: int | None) -> None:
    full = {"maxExecutors": "spark.dynamicAllocation.maxExecutors", "cores": "spark.executor.cores"}
    named = {full.get(name, name): value for name, value in settings.items()}
    assert is_dynamic(named | {"spark.dynamicAllocation.enabled": "true"})
    assert not is_dynamic(named)
    assert most_dynamic_tasks(named) == tasks


@pytest.mark.parametrize("master", CLUSTERS)
def test_a_master_in_the_defaults_of_spark_is_one_that_somebody_chose(master: str, defaults: Path) -> None:
    defaults.write_text(f"# ours\nspark.master   {master}\nspark.app.name=theirs\n")
    assert session_settings({}) == {TIME_ZONE: "UTC"} | QUIET_SETTINGS
    assert session_config({}).keys() == {TIME_ZONE, *QUIET_SETTINGS, JAVA_OPTIONS, DEFAULT_JAVA_OPTIONS}
    assert known_master({}) == master
    assert known_master({"spark.master": "local[2]"}) == "local[2]"


def test_a_local_setting_in_the_defaults_of_spark_is_not_overridden(defaults: Path) -> None:
    defaults.write_text(f"spark.sql.shuffle.partitions: 64\n{JAVA_OPTIONS} -Dx=y z\nspark.master=local[3]\n")
    settings = session_config({})
    assert settings.keys().isdisjoint({"spark.sql.shuffle.partitions", JAVA_OPTIONS, "spark.master"})
    assert settings["spark.ui.enabled"] == "false"
    assert DAEMON in settings


def test_the_arguments_of_spark_submit_count(defaults: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults.write_text("spark.master yarn\n")
    arguments = "--master spark://host:7077 --conf 'spark.a=b c' --name x --properties-file /nowhere pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert known_master({}) == "spark://host:7077"
    assert settings_of_environment({"PYSPARK_SUBMIT_ARGS": arguments})["spark.a"] == "b c"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "'unbalanced")
    assert known_master({}) == "yarn"


def test_a_program_of_spark_submit_has_a_jvm_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert session_settings({}) == session_config({}) == OURS
    assert known_master({}) is None


def test_a_connect_server_keeps_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"spark.remote": "sc://host:15002"}
    assert session_config(chosen) == {TIME_ZONE: "UTC"} | chosen
    assert known_master(chosen) is None
    monkeypatch.setenv("SPARK_REMOTE", "sc://other")
    assert session_config({}) == {TIME_ZONE: "UTC"}
    assert known_master({}) is None
    assert known_master({"spark.master": "local[2]"}) == "local[2]"


def test_a_chosen_master_wins_over_the_variable_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://other")
    with variables_of_start({"spark.master": "local[2]"}):
        assert "SPARK_REMOTE" not in os.environ
    assert os.environ["SPARK_REMOTE"] == "sc://other"
    with variables_of_start({}):
        assert os.environ["SPARK_REMOTE"] == "sc://other"
        assert "PYSPARK_PYTHON" not in os.environ


def test_the_daemon_imports_pyspark_from_its_folder_only_if_it_is_the_same_installation(tmp_path: Path) -> None:
    libraries = tmp_path / "site" / "pyspark" / "python" / "lib"
    libraries.mkdir(parents=True)
    zips = [str(libraries / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    site, other = str(tmp_path / "site"), str(tmp_path / "other.zip")
    assert without_zips([*zips, site, other]) == [*zips, site, other]  # a Spark whose Python is only in its zips
    for package in ("pyspark", "py4j"):
        (tmp_path / "site" / package).mkdir(exist_ok=True)
        (tmp_path / "site" / package / "__init__.py").write_text("")
    assert without_zips([*zips, site, other]) == [site, other]
    assert without_zips([*zips, sys.prefix]) == [*zips, sys.prefix]
