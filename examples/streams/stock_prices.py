"""Prices of stocks by minute, with the change since the first one: `barnabas streams run stock_prices:app`."""

from dataclasses import dataclass

from barnabas.streams import App, Windowed, tumbling, until_window_closes


@dataclass
class Trade:
    symbol: str
    price: float
    shares: int


@dataclass
class Minute:
    first: float
    last: float
    lowest: float
    highest: float
    shares: int

    def with_trade(self, trade: Trade) -> "Minute":
        return Minute(
            self.first,
            trade.price,
            min(self.lowest, trade.price),
            max(self.highest, trade.price),
            self.shares + trade.shares,
        )


def add(symbol: str, trade: Trade, minute: Minute | None) -> Minute:
    if minute is None:
        minute = Minute(trade.price, trade.price, trade.price, trade.price, 0)
    return minute.with_trade(trade)


def line(key: Windowed[str], minute: Minute) -> dict[str, object]:
    change = round((minute.last - minute.first) / minute.first * 100, 2)
    return {"symbol": key.key, "minute": key.start, "last": minute.last, "change_percent": change}


app = App("stock-prices")
(
    app.stream("trades", value=Trade)
    .group_by(lambda symbol, trade: trade.symbol)
    .windowed_by(tumbling("1 minute", grace="10 seconds"))
    .aggregate(lambda: None, add, name="minutes")
    .suppress(until_window_closes())
    .to_stream()
    .map(lambda key, minute: (key.key, line(key, minute)))
    .to("prices-by-minute", value="json")
)
