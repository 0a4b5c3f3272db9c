"""What a running app answers over HTTP, for tests and benchmarks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S: Final = 30.0


class AppEndpoints:
    """The endpoints of an app that listens at `port` of this machine."""

    def __init__(self, port: int) -> None:
        self.listen = f"127.0.0.1:{port}"

    def health(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /health; status 0 where nobody listens."""
        return self._get_json("/health")

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /ready; status 0 where nobody listens."""
        return self._get_json("/ready")

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Every sample of /metrics, by its name and its labels other than `app`."""
        text = self._get("/metrics")[1]
        return {
            (sample.name, frozenset(item for item in sample.labels.items() if item[0] != "app")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def sample(self, name: str, **labels: object) -> float | None:
        """One sample; None where there is none."""
        return self.samples().get((name, frozenset((label, str(value)) for label, value in labels.items())))

    def _get_json(self, path: str) -> tuple[int, dict[str, Any]]:
        status, body = self._get(path)
        return status, json.loads(body) if body else {}

    def _get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.listen}{path}", timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""
