"""The examples of docs/schedulers.md are run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from leap_predictor import schedulers
from ranked_choices import choice

PAGE = Path(__file__).resolve().parents[4] / "docs" / "schedulers.md"
RANKING = [choice("H100-SXM-80", 2.0), choice("A100-SXM-80", 1.5), choice("L4", 1.0, demoted=True)]


def test_every_example_of_the_page_holds() -> None:
    names = {name: getattr(schedulers, name) for name in schedulers.__all__} | {"choices": RANKING}
    blocks = re.findall(r"```python\n(>>> .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    for number, block in enumerate(blocks, 1):
        example = doctest.DocTestParser().get_doctest(block, dict(names), f"block {number}", str(PAGE), 0)
        assert doctest.DocTestRunner().run(example).failed == 0


def test_labels_file_of_the_page_is_one(tmp_path: Path) -> None:
    (content,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "labels.toml"
    file.write_text(content, encoding="utf-8")
    labels = schedulers.read_labels(file)
    assert labels.feature("H100-SXM-80") == "h100"
    assert labels.accelerator_names("H100-SXM-80") == ("H100", "H100-SXM")
    node = labels.node("TPU-v5e")
    assert node is not None
    assert node.key == "cloud.google.com/gke-tpu-accelerator"
