"""A log's options: the topic configs used by storage and the append path, with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from barnabas.records.compression import Codec

LONG_MAX: Final = (1 << 63) - 1

_RENAMED: Final = {
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Field names are Kafka's topic configs, dots as underscores; `of` takes them with dots."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    message_timestamp_type: str = "CreateTime"
    message_downconversion_enable: bool = True
    timestamp_after_max_ms: int = 3_600_000
    timestamp_before_max_ms: int = LONG_MAX
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    confluent_key_schema_validation: bool = False
    confluent_value_schema_validation: bool = False
    confluent_key_subject_name_strategy: str = "TopicNameStrategy"
    confluent_value_subject_name_strategy: str = "TopicNameStrategy"
    barnabas_key_index: bool = False
    barnabas_link: str = ""
    is_internal: bool = False

    compact: bool = field(init=False, repr=False)
    delete: bool = field(init=False, repr=False)
    log_append_time: bool = field(init=False, repr=False)
    checks_schemas: bool = field(init=False, repr=False)
    """The schemas that records name must be looked up before an append."""
    is_plain: bool = field(init=False, repr=False)
    """Produced batches are appended unchanged: no check of keys, no recompression, no change of timestamps."""

    def level_of(self, codec: Codec) -> int | None:
        """The compression level for a codec; None for the codec's default."""
        return {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }.get(codec)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "compact", "compact" in self.cleanup_policy)
        set_field(self, "delete", "delete" in self.cleanup_policy)
        set_field(self, "log_append_time", self.message_timestamp_type == "LogAppendTime")
        checks_schemas = self.confluent_key_schema_validation or self.confluent_value_schema_validation
        set_field(self, "checks_schemas", checks_schemas)
        set_field(
            self,
            "is_plain",
            not self.compact
            and not checks_schemas
            and not self.log_append_time
            and self.compression_type == "producer"
            and self.timestamp_before_max_ms == LONG_MAX
            and not self.barnabas_link,
        )

    @classmethod
    def of(cls, topic_configs: Mapping[str, Any], *, is_internal: bool = False) -> Self:
        """A config from typed values under Kafka's dotted names; names that storage does not use are ignored."""
        known = {name for name, option in cls.__dataclass_fields__.items() if option.init}
        values: dict[str, Any] = {}
        for name, value in topic_configs.items():
            key = _RENAMED.get(name, name.replace(".", "_"))
            if key in known and value is not None:
                values[key] = tuple(value) if key == "cleanup_policy" else value
        values["is_internal"] = is_internal
        return cls(**values)
