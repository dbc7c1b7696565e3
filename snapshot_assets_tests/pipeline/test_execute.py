"""What the command line says of a run that failed."""

from __future__ import annotations

import dagster as dg

from snapshot_assets.errors import PlanError, SnapshotError
from snapshot_assets.pipeline.execute import _failure


def failed(error: BaseException, cause: BaseException | None = None) -> SnapshotError:
    """Return what is said of a run whose one step raised an error."""

    @dg.asset
    def broken() -> None:
        raise error from cause

    return told_of(broken)


def told_of(asset: dg.AssetsDefinition, **resources: object) -> SnapshotError:
    """Return what is said of a run of one asset that fails."""
    definitions = dg.Definitions([asset], resources=resources)
    with dg.DagsterInstance.ephemeral() as instance:
        return _failure(
            definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
        )


def test_an_error_of_this_package_keeps_its_kind_and_words_whatever_caused_it() -> None:
    told = failed(PlanError("the plan is wrong"), ValueError("of the driver"))
    assert type(told) is PlanError
    assert str(told) == "broken failed: the plan is wrong"


def test_another_error_is_told_by_its_own_words() -> None:
    told = failed(ValueError("of the driver"), KeyError("below"))
    assert type(told) is SnapshotError
    assert str(told) == "broken failed: ValueError: of the driver"


def test_a_run_that_was_stopped_says_that_it_can_be_repeated() -> None:
    told = failed(dg.DagsterExecutionInterruptedError())
    assert str(told).startswith("The run was interrupted. Committed chunks stay;")


def test_a_run_that_failed_in_none_of_its_steps_says_why() -> None:
    @dg.asset(io_manager_key="_refused")
    def unnamed() -> None:
        """Never begun."""

    told = told_of(unnamed, _refused=dg.mem_io_manager)
    assert str(told) == "The run failed: ValueError: Field names cannot start with an underscore: '_refused'"
