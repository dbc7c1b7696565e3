"""Plans that sign: the asset `manifest` signs what it seals, and `restored` demands a signature that counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from snapshot_assets.catalog.seals.ssh import Signing
from snapshot_assets.catalog.verify.signatures import check_signed
from snapshot_assets.plan.configuration import Configuration
from snapshot_assets_tests.catalog.signing import allow, make_key, signing_of
from snapshot_assets_tests.pipeline.project import Make, Project


def signed_by(project: Project) -> str:
    """Return who signed the newest seal, by the plan's list."""
    found = check_signed(Configuration().store(project.plan), project.state(), project.plan.signing)
    assert found is not None
    return found.by


def refusal(project: Project) -> str:
    """Return why the asset `restored` refuses the snapshot; it touches no target."""
    result = project.run("restored", single=project.keys[0])
    assert not result.success
    assert not project.target.exists()
    return project.failure(result).description or ""


def test_manifest_signs_what_it_seals_and_restored_accepts_only_listed_signers(
    make_project: Make, tmp_path: Path
) -> None:
    project = make_project(target="copy", signing=signing_of(tmp_path / "keys"))
    assert project.run("schema", "chunks", "untimed_tables", "manifest", keys=project.keys).success
    assert signed_by(project) == "alice@example.com"
    others = Signing(allowed_signers=str(allow(tmp_path / "keys", make_key(tmp_path / "keys", "bob"))))
    stranger = replace(project, plan=project.plan.model_copy(update={"signing": others}))
    assert "allowed_signers_bob for seal@snapshot-assets" in refusal(stranger)
    assert project.run("restored", single=project.keys[0]).success


def test_restored_refuses_a_seal_that_is_not_signed(copied: Make, tmp_path: Path) -> None:
    project = copied(target="copy", signing=signing_of(tmp_path / "keys"))
    assert "is not signed" in refusal(project)
