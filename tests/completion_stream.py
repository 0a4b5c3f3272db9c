"""A stream of completion events with all that may come in one, for tests of those who take it in."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

from events_strategies import event_fields
from leap_features.settings import Settings
from leap_streams.producer import CompletionProducer


def produce(settings: Settings, count: int, seed: int) -> None:
    """`count` attempts of a few families: some failed, a twentieth sent twice, a fiftieth reported with other content.

    The attempts of one seed are other ones than those of another.
    """
    rng = random.Random(seed)
    now = datetime.now(UTC) - timedelta(hours=1)
    sent: list[bytes] = []
    with CompletionProducer(settings) as producer:
        for i in range(count):
            model = f"model{rng.randrange(6)}"
            failed = rng.random() < 0.1
            fields = event_fields(
                attempt_id=f"attempt-{seed}-{i}",
                job_name=f"{model}-family{rng.randrange(5)}-run{i}",
                model_type=model,
                completed=now + timedelta(seconds=rng.randrange(3000)),
                trainer_count=rng.choice([8, 16]),
                status="failed" if failed else "succeeded",
                throughput=... if failed else rng.lognormvariate(5, 2),
            )
            raw = json.dumps(fields).encode()
            producer.send_encoded(raw)
            sent.append(raw)
            if rng.random() < 0.05:
                producer.send_encoded(rng.choice(sent))
            if rng.random() < 0.02:
                other = json.loads(rng.choice(sent))
                producer.send_encoded(json.dumps(other | {"trainer_count": 32}).encode())
    assert producer.failed == 0
