"""The examples without Spark, a broker or Java: `pytest test_examples.py`."""

import priority
import stock_prices
import trucks
import word_count

from barnabas.streams import TopologyTestDriver


def test_words_are_counted():
    with TopologyTestDriver(word_count.app.build()) as driver:
        driver.pipe_input("lines", None, "To be, or not to be")
        assert driver.read_table("word-counts") == {"to": 2, "be": 2, "or": 1, "not": 1}
        assert driver.store("counts").get("be") == 2


def test_dangerous_driving_is_passed_on_and_lines_that_are_none_become_dead_letters():
    normal = "1522847870310,44,13,1390372503,Normal,41.71,-91.32,-2458274393837068406"
    dangerous = "1522847914240,54,11,1198242881,Lane Departure,40.86,-89.91,-2458274393837068406"
    with TopologyTestDriver(trucks.app.build()) as driver:
        for line in (normal, dangerous, "no position"):
            driver.pipe_input("truck_position", "truck/11/position0", line)
        assert driver.read_values("dangerous_driving") == [dangerous]
        assert [letter.value for letter in driver.dead_letters] == [b"no position"]


def test_a_minute_of_prices_has_one_result():
    with TopologyTestDriver(stock_prices.app.build()) as driver:
        for price, at in ((100.0, 0), (110.0, 30_000), (99.0, 59_000), (105.0, 60_000), (1.0, 200_000)):
            trade = {"symbol": "MMM", "price": price, "shares": 10}
            driver.pipe_input("trades", None, stock_prices.Trade(**trade), timestamp=at)
        assert driver.read_values("prices-by-minute") == [
            {"symbol": "MMM", "minute": 0, "last": 99.0, "change_percent": -1.0},
            {"symbol": "MMM", "minute": 60_000, "last": 105.0, "change_percent": 0.0},
        ]


def test_urgent_jobs_go_first():
    with TopologyTestDriver(priority.app.build()) as driver:
        for at, (name, urgency) in enumerate((("a", 1), ("b", 9), ("c", 5), ("d", 9))):
            driver.pipe_input("jobs", None, priority.Job(name, urgency), timestamp=at)
        driver.advance_time("1 second")
        assert [record.key for record in driver.read_output("jobs-by-priority")] == ["b", "d"]
        driver.advance_time("1 second")
        assert [record.key for record in driver.read_output("jobs-by-priority")] == ["c", "a"]
