"""Trucks send their positions by MQTT; who drives dangerously is found with SQL, with the drivers' names from a database.

    python examples/trucks_connect/run.py --mqtt tcp://localhost:1883 --database "jdbc:postgresql://localhost/sample?user=me"

Starts a broker with connectors and SQL, creates the table `driver` in the database, two connectors from the JSON files here,
and the streams of trucks.sql; then plays three trucks, and shows what comes out. Everything is kept below --data
(data/trucks_connect).
"""

from __future__ import annotations

import argparse
import json
import string
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import paho.mqtt.client as paho
import sqlalchemy as sa
from paho.mqtt.enums import CallbackAPIVersion

from barnabas.connect.jdbc.urls import sqlalchemy_url

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
POSITIONS = (
    (13, "1522847870310,44,10,1390372503,Normal,41.71,-91.32,-2458274393837068406"),
    (11, "1522847914240,54,11,1198242881,Lane Departure,40.86,-89.91,-2458274393837068406"),
    (10, "1522847915125,93,10,1384345811,Overspeed,40.38,-89.17,-2458274393837068406"),
)


class Failed(Exception):
    """The example cannot continue; one line says why."""


def barnabas(*arguments: str) -> str:
    """Runs a command; its output."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"barnabas {arguments[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def post(url: str, file: str, **values: str) -> None:
    """Creates the connector of a JSON file, as the lesson does with curl."""
    text = string.Template((HERE / file).read_text()).safe_substitute(values)
    request = urllib.request.Request(
        f"{url}/connectors", text.encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            print(f"connector {json.load(answer)['name']}", flush=True)
    except urllib.error.HTTPError as error:
        raise Failed(f"{file}: {error.read().decode()}") from None


def fill(database: str) -> None:
    """Creates the table of drivers."""
    try:
        with sa.create_engine(sqlalchemy_url(database)).begin() as connection:
            for statement in (HERE / "driver.sql").read_text().split(";"):
                if statement.strip():
                    connection.exec_driver_sql(statement)
    except sa.exc.SQLAlchemyError as error:
        raise Failed(f"the database: {error}") from None


def send(mqtt: str) -> None:
    """Plays the trucks."""
    host, _, port = mqtt.rpartition("/")[2].partition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="trucks")
    try:
        client.connect(host, int(port or 1883))
    except OSError as error:
        raise Failed(f"{mqtt}: {error}") from None
    client.loop_start()
    for truck, position in POSITIONS:
        client.publish(f"truck/{truck}/position", position, 1).wait_for_publish(30)
    client.disconnect()
    client.loop_stop()


def records(topic: str, address: str, count: int, limit_s: float = 600) -> str:
    """The records of a topic, when there are so many."""
    deadline = time.monotonic() + limit_s
    while True:
        whole = ("-o", "beginning", "-e", "-f", "%s\\n")
        try:
            lines = barnabas("consume", topic, "-b", address, *whole)
        except Failed:
            lines = ""
        if len(lines.splitlines()) >= count:
            return lines
        if time.monotonic() > deadline:
            raise Failed(f"{topic} has {len(lines.splitlines())} records after {limit_s:g} s, not {count}")
        time.sleep(1)


def show(options: argparse.Namespace, address: str, connect: str, sql: str) -> None:
    """From MQTT to the join."""
    fill(options.database)
    for topic in (
        "truck_position",
        "truckng_driver",
        "dangerous_driving_s",
        "dangerous_driving_and_driver_s",
    ):
        barnabas("topic", "create", topic, "-p", "1", "--if-not-exists", "-b", address)
    post(connect, "jdbc-driver-source.json", DATABASE=options.database)
    post(connect, "mqtt-source.json", MQTT=options.mqtt)
    print(records("truckng_driver", address, 2), end="", flush=True)
    barnabas("sql", "-f", str(HERE / "trucks.sql"), "--url", sql)
    send(options.mqtt)
    print(records("truck_position", address, len(POSITIONS)), end="", flush=True)
    lines = records("dangerous_driving_and_driver_s", address, 2)
    print("\n".join(sorted(lines.splitlines())), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mqtt", default="tcp://localhost:1883")
    parser.add_argument("--database", required=True, metavar="JDBC_URL")
    parser.add_argument("--data", type=Path, default=PROJECT / "data" / "trucks_connect")
    parser.add_argument(
        "--port", type=int, default=9092, help="of the broker; connectors and SQL take the next two"
    )
    options = parser.parse_args()
    address, connect, sql = (f"127.0.0.1:{options.port + more}" for more in range(3))
    options.data.mkdir(parents=True, exist_ok=True)
    command = ["start", "--data", str(options.data / "broker"), "--listen", address, "--with", "connect,sql"]
    command += [
        "--connect-listen",
        connect,
        "--sql-listen",
        sql,
        "--sql-data",
        str(options.data / "sql"),
        "--metrics",
        "off",
    ]
    with (options.data / "broker.log").open("a") as log:
        broker = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *command], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert broker.stdout is not None
    try:
        if not broker.stdout.readline().startswith("ready"):
            raise Failed(f"the broker did not start: see {log.name}")
        show(options, address, f"http://{connect}", f"http://{sql}")
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        broker.terminate()
        broker.wait(60)
        broker.stdout.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
