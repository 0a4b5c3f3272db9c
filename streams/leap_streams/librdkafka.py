"""The functions of librdkafka that its Python binding leaves out, by ctypes: those of the mock cluster."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path

import confluent_kafka


class LibraryMissingError(RuntimeError):
    """There is no librdkafka with a mock cluster; the message says what to install."""


def librdkafka_path() -> str:
    """Return the librdkafka that confluent-kafka was built with: beside it in a wheel, else the system's.

    Raises:
        LibraryMissingError: there is none.
    """
    package = Path(confluent_kafka.__file__).parent
    for pattern in ("../confluent_kafka.libs/librdkafka*.so*", ".dylibs/librdkafka*.dylib"):
        for path in sorted(package.glob(pattern)):
            return str(path)
    system = ctypes.util.find_library("rdkafka")
    if system is None:
        raise LibraryMissingError(
            f"no librdkafka beside {package}, nor among the system's libraries; install a confluent-kafka wheel"
        )
    return system


def load_librdkafka() -> ctypes.CDLL:
    """Load librdkafka and declare the functions used here, which its Python binding does not offer.

    They are those of `rdkafka_mock.h`, whose cluster is an in-process broker for testing.

    Raises:
        LibraryMissingError: there is no librdkafka, or one without them.
    """
    path = librdkafka_path()
    library = ctypes.CDLL(path)
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    signatures: dict[str, tuple[object, list[object]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, size]),
        "rd_kafka_new": (pointer, [number, pointer, text, size]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_err2str": (text, [number]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise LibraryMissingError(f"this librdkafka has no {name}: install confluent-kafka 2.8 or later") from error
        function.restype, function.argtypes = result, arguments
    return library
