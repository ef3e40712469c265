"""Settings of the example project with a theme for its admin, named by AWA_THEME."""

from __future__ import annotations

from example_project.settings import *  # noqa: F403

INSTALLED_APPS = [env.str("AWA_THEME"), *INSTALLED_APPS]  # noqa: F405
