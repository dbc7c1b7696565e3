"""A hook of MkDocs: the site has all documents, and the files that they link to, where the checkout has them.

It runs in the environment of MkDocs, where nothing of the project can be imported.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PATTERNS = (
    "*.md",
    "docs/**/*.md",
    "docs/pictures/*.png",
    "benchmarks/README.md",
    "examples/**/*",
    "requirements/*.txt",
    "*.yaml",
    "snapshot_assets/format/log.proto",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the place of the files below `docs_dir`: paths begin at the checkout, so links may leave that folder."""
    root = Path(config.config_file_path).parent
    found = {path for pattern in _PATTERNS for path in root.glob(pattern) if path.is_file()}
    kept = [file for file in files if file.src_uri.startswith("assets/")]  # of the theme
    named = [path.relative_to(root).as_posix() for path in sorted(found) if "__pycache__" not in path.parts]
    return Files([*kept, *(File(name, str(root), config.site_dir, config.use_directory_urls) for name in named)])
