"""Dangerous driving: the positions of trucks whose event is not `Normal`: `barnabas streams run trucks:app`.

A position is a line `time,truck,driver,route,event,latitude,longitude,correlation`.
"""

from dataclasses import astuple, dataclass

from barnabas.streams import App


@dataclass(frozen=True)
class Position:
    time: str
    truck: int
    driver: int
    route: int
    event: str
    latitude: float
    longitude: float
    correlation: str

    @classmethod
    def of(cls, line: str) -> "Position":
        time, truck, driver, route, event, latitude, longitude, correlation = line.split(",")
        return cls(
            time, int(truck), int(driver), int(route), event, float(latitude), float(longitude), correlation
        )

    def csv(self) -> str:
        return ",".join(str(part) for part in astuple(self))


app = App("trucks")
(
    app.stream("truck_position")
    .map_values(Position.of)
    .filter(lambda position: position.event != "Normal")
    .map_values(Position.csv)
    .to("dangerous_driving")
)
