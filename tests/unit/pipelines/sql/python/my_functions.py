import datetime
import statistics

from barnabas.sql.functions import aggregate, scalar, table


@scalar
def risk(speed: float, limit: int = 80) -> float:
    "how dangerous a speed is"
    return 0.0 if speed is None else max(0.0, speed - limit) / limit


@scalar(returns="STRUCT<a INT, b STRING>", takes=["MAP<STRING, INT>"])
def first_of(m):
    k = sorted(m)[0]
    return {"A": m[k], "B": k}


@scalar
def tomorrow(at: datetime.datetime) -> datetime.datetime:
    return None if at is None else at + datetime.timedelta(days=1)


@scalar
def wrong(n: int) -> int:
    return "text" if n > 5 else n // (n - 2)


@aggregate(takes=["DOUBLE"], returns="DOUBLE")
def middle(values):
    return statistics.median(values)


@aggregate(takes=["INT", "INT"], returns="BIGINT")
def dot(pairs):
    return sum(a * b for a, b in pairs if a is not None and b is not None)


@table(name="WORDS", takes=["STRING"], returns="ARRAY<STRING>")
def words_of(text):
    return (text or "").split()
