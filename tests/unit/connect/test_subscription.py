"""`barnabas connect create --from`: one address as the configuration of a connector."""

from __future__ import annotations

import pytest

from barnabas.connect.cdc.subscription import subscription
from barnabas.connect.errors import OptionError
from barnabas.connect.plugins import find_plugin


def test_postgres():
    name, config = subscription(
        "postgresql://me:p%40ss@db:5433/Shop-1?sslmode=require", ["orders", "crm.cust*"]
    )
    assert name == "Shop-1-changes"
    assert config == {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "db",
        "database.port": "5433",
        "database.user": "me",
        "database.password": "p@ss",
        "database.dbname": "Shop-1",
        "database.sslmode": "require",
        "topic.prefix": "Shop-1",
        "slot.name": "barnabas_shop_1",
        "publication.name": "barnabas_shop_1",
        "publication.autocreate.mode": "filtered",
        "table.include.list": r"public\.orders,crm\.cust.*",
    }
    find_plugin(config["connector.class"]).load().definition().parse(config)


def test_mysql_and_mariadb():
    _, config = subscription("mysql://me@db/shop", ["orders"], "p", rows=True)
    assert config["connector.class"] == "io.debezium.connector.mysql.MySqlConnector"
    assert config["table.include.list"] == r"shop\.orders"
    assert config["transforms.unwrap.type"] == "io.debezium.transforms.ExtractNewRecordState"
    assert subscription("mariadb://me@db/shop", [])[1]["database.include.list"] == "shop"


def test_mongodb():
    _, config = subscription("mongodb://me:secret@a,b/shop?replicaSet=rs", ["orders"])
    assert config["connection.uri"] == "mongodb://me:secret@a,b/?replicaSet=rs"
    assert (config["database"], config["collection"]) == ("shop", "orders")
    _, config = subscription("mongodb://db/shop", ["a", "b"])
    assert config["pipeline"] == '[{"$match": {"ns.coll": {"$in": ["a", "b"]}}}]'


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("oracle://me:secret@db/x", "--from oracle://db/x: an address like postgresql://"),
        ("postgresql://me:secret@db", "the database is missing: postgresql://db/DATABASE"),
        ("postgresql://db/x", "the user is missing: postgresql://USER:PASSWORD@"),
        ("mysql://me:secret@db:port/x", "--from mysql://db:port/x: "),
    ],
)
def test_what_is_wrong_is_said_without_the_password(url, message):
    with pytest.raises(OptionError) as caught:
        subscription(url, [])
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
