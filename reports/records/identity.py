"""The identity of a run: what was built, from what, and where. Averages, pairs, reuse and resume all compare it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from reports.records.config import Change
from reports.records.environment import Environment, Place
from reports.records.files import Schema
from reports.records.summary import Summary

NAMES = {
    "config_sha256": "configuration",
    "initial_weights_sha256": "initial weights",
    "data_order_sha256": "data order",
    "source_sha256": "source of the model",
    "data_sha256": "content of the data",
    "device": "kind of device",
    "threads": "threads",
    "cpu": "CPU",
    "versions": "versions of each attempt",
    "builds": "builds of the numerical libraries",
}


class Identity(Schema):
    """What makes two runs comparable. A field that is None, or empty, is not recorded and is not compared.

    `initial_weights_sha256` covers names, shapes and bytes; `source_sha256` the code of the training script and of
    the model's classes, without comments and docstrings; `data_sha256` the content of all splits.
    """

    config_sha256: str | None = None
    initial_weights_sha256: str | None = None
    data_order_sha256: str | None = None
    source_sha256: str | None = None
    data_sha256: str | None = None
    place: Place = Field(default_factory=Place)


HASHES = tuple(name for name in Identity.model_fields if name != "place")
BUILT = HASHES[1:]  # a configuration is compared key by key
PLACE = tuple(Place.model_fields)
# Equal for the precisions of a seed, and for all runs of a comparison.
PAIRED = ("initial_weights_sha256", "data_order_sha256")
SHARED = ("config_sha256", "source_sha256", "data_sha256", *PLACE)


def recorded_identity(summary: Summary, environment: Environment | None) -> Identity:
    """The identity in a run's records. Where its attempts do not say where they ran, little of it is known."""
    place = Place()
    if environment is not None:
        recorded = [attempt.place for attempt in environment.attempts if attempt.place]
        known = environment.place
        place = recorded[-1] if recorded else Place(device=known.device, threads=known.threads)
    return Identity(**{name: getattr(summary, name) for name in HASHES}, place=place)


def differences(before: Identity, after: Identity, fields: Sequence[str] = (*BUILT, *PLACE)) -> list[Change]:
    """The `fields` in which two identities differ, of those that both record; parts such as `versions.torch` apart."""
    old, new = dict(_facts(before, fields)), dict(_facts(after, fields))
    return [Change(key, old[key], new[key]) for key in old if key in new and old[key] != new[key]]


def different(identities: Sequence[Identity], fields: Sequence[str]) -> list[str]:
    """The keys of `fields` in which any two of `identities` differ."""
    values: dict[str, set[Any]] = {}
    for identity in identities:
        for key, value in _facts(identity, fields):
            values.setdefault(key, set()).add(value)
    return [key for key, several in values.items() if len(several) > 1]


def not_recorded(identities: Iterable[Identity]) -> list[str]:
    """The names of the fields that at least one of `identities` does not record."""
    known = [{key.partition(".")[0] for key, _ in _facts(identity, NAMES)} for identity in identities]
    return [name for field, name in NAMES.items() if any(field not in fields for fields in known)]


def in_words(changes: Iterable[Change]) -> str:
    """Which fields differ; values stand beside them where a reader knows them."""
    return ", ".join(
        f"another {NAMES[change.key]}"
        if change.key in HASHES
        else f"{change.key} {change.before!r} there and {change.after!r} here"
        for change in changes
    )


def _facts(identity: Identity, fields: Iterable[str]) -> Iterator[tuple[str, Any]]:
    values = {name: getattr(identity, name) for name in HASHES} | dict(identity.place)
    for name in fields:
        parts = {f"{name}.{part}": one for part, one in values[name].items()} if isinstance(values[name], dict) else {}
        yield from ((key, value) for key, value in (parts or {name: values[name]}).items() if value not in (None, {}))
