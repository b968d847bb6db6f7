import os
from pathlib import Path

import jaxtyping
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def shared():
    """Real tokenizers, data and reference values beside the repository; a stranger's checkout has none."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared: the real tokenizers, data files and reference values are not here")
    return folder


@pytest.fixture
def shapes_unchecked():
    """Switch the run-time check of annotations off: what a user meets who passes something wrong."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
