"""The pages, in the order in which their addresses are tried, and the menu."""

from __future__ import annotations

from typing import Final

from barnabas.console.pages import (
    access,
    bin,
    brokers,
    clients,
    compare,
    connectors,
    group,
    groups,
    lineage,
    logs,
    mirrors,
    overview,
    pipelines,
    produce,
    records,
    schemas,
    sql,
    topic,
    topics,
    transactions,
)
from barnabas.console.site import Page, Section

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *topics.PAGES,
    *bin.PAGES,
    *records.PAGES,
    *produce.PAGES,
    *transactions.PAGES,
    *compare.PAGES,
    *lineage.PAGES,
    *topic.PAGES,
    *groups.PAGES,
    *group.PAGES,
    *brokers.PAGES,
    *schemas.PAGES,
    *access.PAGES,
    *pipelines.PAGES,
    *connectors.PAGES,
    *sql.PAGES,
    *mirrors.PAGES,
    *logs.PAGES,
    *clients.PAGES,
)
SECTIONS: Final = (
    Section("overview", "Overview", ""),
    Section("topics", "Topics", "/topics"),
    Section("lineage", "Lineage", "/lineage"),
    Section("groups", "Groups", "/groups"),
    Section("transactions", "Transactions", "/transactions"),
    Section("schemas", "Schemas", "/schemas"),
    Section("pipelines", "Pipelines", "/pipelines"),
    Section("connectors", "Connectors", "/connectors"),
    Section("sql", "SQL", "/sql"),
    Section("logs", "Logs", "/logs"),
    Section("mirrors", "Mirrors", "/mirrors"),
    Section("brokers", "Brokers", "/brokers"),
    Section("clients", "Clients", "/clients"),
    Section("access", "Access", "/access"),
)
