"""Model bundles: one directory each, published whole, checked whole, never read with pickle.

    bundles/
      current                                   id of the bundle to serve, one line
      20260301T040000Z-3f9c…/manifest.json      what it is, with size and SHA-256 of every other file
      20260301T040000Z-3f9c…/layered.json, layered.npz         or cascade.json, cascade.npz

An id is the time of publishing and the first 16 digits of the SHA-256 of `manifest.json`, so a damaged manifest is
noticed as well. Publishing steps, each of which a crash may follow: (1) the files are written under a hidden name and
forced to disk, (2) the directory is renamed to its id, (3) `current` is replaced by a rename. Earlier bundles stay.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Final

import msgspec

from leap_features import durable, family
from leap_features.columns import Specifications
from leap_features.hardware import Catalogue
from leap_features.row import check_features
from leap_predictor.errors import BundleError, ModelError
from leap_predictor.manifest import (
    MAX_MANIFEST_BYTES,
    File,
    Manifest,
    ModelName,
    catalogue_of,
    decode_manifest,
    encode_manifest,
)
from leap_predictor.models import cascade_files, layered_files
from leap_predictor.models.served_model import ServedModel

MANIFEST: Final = "manifest.json"
CURRENT: Final = "current"

_BUNDLE_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{16}")


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle that has been checked and read."""

    bundle_id: str
    manifest: Manifest
    catalogue: Catalogue
    """Hardware types that can be ranked."""
    model: ServedModel
    rules: family.Rules
    """Rules that job families are derived by."""

    def family_of(self, model_type: str, job_name: str, stem: str | None) -> str:
        """The job family of a job, as the stream derives it of the job's completion.

        Raises:
            FamilyError: `stem`, the family's given stem, breaks a rule.
        """
        if stem is not None:
            return family.family_from_stem(model_type, stem)
        return family.family_of(model_type, job_name, self.rules)


def library_version() -> str:
    """Version of this distribution."""
    try:
        return importlib.metadata.version("leap-throughput")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return "unknown"


def publish(bundles: Path, manifest: Manifest, files: Mapping[str, bytes]) -> str:
    """Write a bundle, make it the current one and return its id.

    Args:
        bundles: directory of all bundles; made if it is absent.
        manifest: what to publish; its `files` are filled in here.
        files: content by name.

    Raises:
        BundleError: the directory cannot be written, or the bundle could not be read back.
    """
    entries = {name: File(len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    raw = encode_manifest(msgspec.structs.replace(manifest, files=entries))
    bundle_id = f"{manifest.created_at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{hashlib.sha256(raw).hexdigest()[:16]}"
    parse(bundle_id, raw, files)  # nothing is published that a launcher would refuse
    place(bundles, bundle_id, {**files, MANIFEST: raw})
    return bundle_id


def place(bundles: Path, bundle_id: str, files: Mapping[str, bytes]) -> None:
    """Write the bundle of these bytes, manifest and all, and make it the current one.

    Killed at any instant and called again it comes to the same: the directory appears by a rename, then `current`.

    Raises:
        BundleError: the directory cannot be written.
    """
    hidden = bundles / f".publishing-{secrets.token_hex(8)}"
    try:
        hidden.mkdir(parents=True)
        for name, content in files.items():
            _write(hidden / name, content)
        durable.sync(hidden)
        if not (bundles / bundle_id).exists():  # the same id has the same bytes
            hidden.rename(bundles / bundle_id)
        set_current(bundles, bundle_id)
    except OSError as error:
        raise BundleError(f"bundle {bundle_id} cannot be written to {bundles}: {error}") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def set_current(bundles: Path, bundle_id: str) -> None:
    """Let launchers serve `bundle_id` from now on, e.g. to go back to an earlier bundle.

    Raises:
        BundleError: there is no such bundle in `bundles`.
    """
    if not (bundles / bundle_id / MANIFEST).is_file():
        raise BundleError(f"there is no bundle {bundle_id!r} in {bundles}")
    try:
        durable.publish(bundles, CURRENT, f"{bundle_id}\n".encode(), replace=True)
    except OSError as error:
        raise BundleError(f"{bundles / CURRENT} cannot be written: {error}") from error


def current_id(bundles: Path) -> str:
    """Id of the bundle to serve: what `current` says, or `bundles` itself where that is one bundle.

    Raises:
        BundleError: there is none yet, or `current` is damaged.
    """
    if (bundles / MANIFEST).is_file():
        return bundles.resolve().name  # "." and a link to a bundle have other names than it
    path = bundles / CURRENT
    try:
        with path.open("rb") as file:
            text = file.read(200).decode(errors="replace").strip()
    except FileNotFoundError:
        raise BundleError(f"{bundles} holds no published bundle: run `leap train`") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error}") from error
    if not _BUNDLE_ID.fullmatch(text):
        raise BundleError(f"{path} must hold the id of a bundle, got {text!r}: run `leap train`")
    return text


def load(bundles: Path, bundle_id: str | None = None) -> Bundle:
    """Read a bundle; by default the current one.

    Sizes and digests are checked before anything is parsed.

    Raises:
        BundleError: absent, damaged, of another format, or not what this release can serve.
    """
    bundle_id = bundle_id if bundle_id is not None else current_id(bundles)
    directory = bundles if (bundles / MANIFEST).is_file() else bundles / bundle_id
    raw = _read(directory / MANIFEST, MAX_MANIFEST_BYTES)
    _check_manifest_digest(bundle_id, raw)
    manifest = decode_manifest(raw, library_version())
    return parse(bundle_id, raw, {name: _read(directory / name, entry.size) for name, entry in manifest.files.items()})


def parse(bundle_id: str, raw_manifest: bytes, files: Mapping[str, bytes]) -> Bundle:
    """The bundle in these bytes.

    Raises:
        BundleError: a digest differs, or the content is not what this release can serve.
    """
    _check_manifest_digest(bundle_id, raw_manifest)
    manifest = decode_manifest(raw_manifest, library_version())
    if set(manifest.files) != set(files):
        raise BundleError(f"bundle {bundle_id} must hold {sorted(manifest.files)}, it holds {sorted(files)}")
    for name, entry in manifest.files.items():
        _check_file(bundle_id, name, entry, files[name])
    try:
        check_features(manifest.features, manifest.categories)
    except ValueError as error:
        raise BundleError(f"bundle {bundle_id}: {error}") from error
    catalogue = catalogue_of(manifest)
    try:
        model = read_model(manifest.model, files, catalogue)
    except ModelError as error:
        raise ModelError(f"bundle {bundle_id}: {error}") from error
    if (model.features, model.categories) != (manifest.features, manifest.categories):
        raise BundleError(f"bundle {bundle_id}: the model and the manifest name different features or categories")
    return Bundle(bundle_id, manifest, catalogue, model, _rules(bundle_id, manifest))


def read_model(name: ModelName, files: Mapping[str, bytes], catalogue: Catalogue) -> ServedModel:
    """The model of this name in `files`, as a launcher runs it.

    Args:
        name: of the model.
        files: content by name.
        catalogue: hardware that it will be asked about.

    Raises:
        ModelError: the files are not those of such a model.
    """
    if name == "layered":
        return layered_files.from_files(files, catalogue.canonical)
    return cascade_files.from_files(files, specifications_of(catalogue))


def _rules(bundle_id: str, manifest: Manifest) -> family.Rules:
    if manifest.family_rules:
        from leap_features import family_file  # noqa: PLC0415  # without own rules no parser is needed

        try:
            rules = family_file.parse(manifest.family_rules.encode(), f"family rules of bundle {bundle_id}")
        except family_file.RulesError as error:
            raise BundleError(f"bundle {bundle_id}: {error}") from error
    else:
        rules = family.DEFAULT_RULES
    if rules.version != manifest.family_rule:
        raise BundleError(
            f"bundle {bundle_id} has family rule {manifest.family_rule!r} (leap-throughput "
            f"{manifest.library_version}), this release ({library_version()}) derives by {rules.version!r}: train again"
        )
    return rules


def specifications_of(catalogue: Catalogue) -> Specifications:
    """Finds the published specifications of a hardware type in `catalogue`, by name or alias."""

    def find(hardware_type: str) -> dict[str, float] | None:
        row = catalogue.lookup(hardware_type)
        return None if row is None else {name: value for name, value in row.specs().items() if value is not None}

    return find


def _check_manifest_digest(bundle_id: str, raw: bytes) -> None:
    digest = hashlib.sha256(raw).hexdigest()[:16]
    if bundle_id.rpartition("-")[2] != digest:
        raise BundleError(
            f"bundle {bundle_id} is damaged: {MANIFEST} has the SHA-256 {digest}…, which its id does not end with"
        )


def _check_file(bundle_id: str, name: str, entry: File, content: bytes) -> None:
    if len(content) != entry.size:
        raise BundleError(f"bundle {bundle_id} is damaged: {name} must have {entry.size} bytes")
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise BundleError(f"bundle {bundle_id} is damaged: {name} must have the SHA-256 {entry.sha256}")


def _read(path: Path, limit: int) -> bytes:
    """The content of `path`, of which no more than `limit` + 1 bytes are read."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error}") from error
    if len(content) > limit:
        raise BundleError(f"{path} must not be larger than {limit} bytes")
    return content


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
