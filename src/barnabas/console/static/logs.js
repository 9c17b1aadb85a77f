// Searches of logs that go to the end, and live tails. Pages work without this file.
"use strict";
(() => {
  const form = document.getElementById("log");
  if (!form) return;
  const result = document.getElementById("result"), live = document.getElementById("live"), rows = live.querySelector("tbody");
  const progress = document.getElementById("progress"), notes = document.getElementById("notes"), stop = form.querySelector("[data-stop]");
  const buttons = form.querySelectorAll("[data-stream]");
  const ROWS_MAX = 1000;
  let source = null;

  const end = (text) => {
    if (source) source.close();
    source = null;
    stop.hidden = true;
    for (const button of buttons) button.hidden = false;
    progress.classList.remove("live");
    if (text !== undefined) progress.textContent = text;
  };
  const begin = (kind, again) => {
    end("");
    notes.replaceChildren();
    result.hidden = kind === "tail";
    live.hidden = kind !== "tail";
    if (kind === "tail" && !again) rows.replaceChildren();
    const fields = new URLSearchParams(new FormData(form));
    fields.set("as", "html");
    const own = source = new EventSource(form.dataset.api + "/" + kind + "?" + fields);
    stop.hidden = false;
    for (const button of buttons) button.hidden = true;
    progress.classList.add("live");
    const read = (event) => JSON.parse(event.data);
    source.addEventListener("begun", (event) => { progress.textContent = read(event).said; });
    source.addEventListener("result", (event) => {
      const got = read(event);
      result.innerHTML = got.html;
      progress.textContent = got.said;
    });
    source.addEventListener("found", (event) => {
      const got = read(event);
      rows.insertAdjacentHTML("afterbegin", got.html);
      while (rows.rows.length > ROWS_MAX) rows.lastElementChild.remove();
      if (got.said) progress.textContent = got.said;
    });
    source.addEventListener("done", () => end(""));
    source.addEventListener("failed", (event) => {
      const got = read(event), line = document.createElement("p");
      end("");
      line.className = "note bad";
      line.textContent = got.message + (got.advice ? " " + got.advice : "");
      notes.append(line);
    });
    source.onerror = () => {
      if (kind !== "tail") return end(form.dataset.lost);
      own.close();
      progress.textContent = form.dataset.again;
      setTimeout(() => { if (source === own) begin(kind, true); }, 3000);
    };
  };
  for (const button of buttons) {
    button.hidden = false;
    button.addEventListener("click", () => begin(button.dataset.stream));
  }
  stop.addEventListener("click", () => end());
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && source) end(); });
})();
