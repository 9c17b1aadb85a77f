// Draws the graphs of a page with uPlot: axes with units, values under the pointer. Without this file, still pictures are shown.
"use strict";
(() => {
  if (!window.uPlot) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const short = (value, base, units) => {
    let at = 0;
    while (Math.abs(value) >= base && at < units.length - 1) {
      value /= base;
      at += 1;
    }
    return (at && Math.abs(value) < 100 ? value.toFixed(1) : Math.abs(value) < 10 && value % 1 ? value.toFixed(1) : Math.round(value)) + units[at];
  };
  const amount = (value, unit) => {
    if (value === null || value === undefined) return "–";
    if (unit === "bytes") return short(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
    if (unit === "seconds") return short(value, 1000, [" s", "k s"]);
    return short(value, 1000, ["", "k", "M", "G"]);
  };
  const dashes = [[], [6, 4], [2, 3], [10, 3, 2, 3], [1, 4], [8, 8], [4, 2], [12, 2]];

  const joined = (lines) => {
    const times = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
    const place = new Map(times.map((time, at) => [time, at]));
    return [times, ...lines.map((line) => {
      const values = new Array(times.length).fill(null);
      for (const [time, value] of line.points) values[place.get(time)] = value;
      return values;
    })];
  };

  // The time of a mark in UTC; its day below it where a new one begins.
  const clock = (mark, before, step) => {
    const text = (seconds) => new Date(seconds * 1000).toISOString(), day = text(mark).slice(5, 10);
    const shown = step >= 86400 ? day : text(mark).slice(11, step < 60 ? 19 : 16);
    return step < 86400 && (before === undefined || text(before).slice(5, 10) !== day) ? shown + "\n" + day : shown;
  };

  const draw = (box) => {
    const given = JSON.parse(box.dataset.plot), lines = given.lines;
    const axis = { stroke: colour("--dim"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const options = {
      width: box.clientWidth,
      height: 190,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      axes: [{ ...axis, space: 70, values: (_, marks, at, space, step) => marks.map((mark, number) => clock(mark, marks[number - 1], step)) }, { ...axis, size: 66, space: 32, values: (_, marks) => marks.map((mark) => amount(mark, given.unit)) }],
      padding: [8, 30, 0, 0],
      legend: { live: true },
      cursor: { points: { size: 6 } },
      series: [
        { label: "UTC", value: (_, seconds) => seconds === null ? "–" : new Date(seconds * 1000).toISOString().slice(5, 19).replace("T", " ") },
        ...lines.map((line, at) => ({
          label: line.label || given.unit,
          stroke: colour("--link"),
          fill: lines.length === 1 ? colour("--mark") : undefined,
          width: 1.5,
          dash: dashes[at % dashes.length],
          spanGaps: true,
          points: { show: false },
          value: (_, value) => amount(value, given.unit),
        })),
      ],
    };
    box.replaceChildren();
    const plot = new uPlot(options, joined(lines), box);
    new ResizeObserver(() => {
      if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: 190 });
    }).observe(box);
  };
  for (const box of document.querySelectorAll(".plot")) draw(box);
})();
