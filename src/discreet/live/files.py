"""An app's own pages, served beside the deployment they talk to: one origin, so that browsers let them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Pages(StaticFiles):
    """Files of a folder, and nothing behind links that lead out of it; scripts and styles of this origin only."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def pages(folder: Path | str) -> Mount:
    """The folder at /app/, which begins with its index.html."""
    if not (Path(folder) / "index.html").is_file():
        raise ValueError(f"{folder} has no index.html; expected a folder of pages")
    options: Any = {"directory": folder, "html": True}
    return Mount("/app", Pages(**options))
