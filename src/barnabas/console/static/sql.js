// Runs a query whose rows come one after the other, and stops it. Without this file, the form shows its first rows.
"use strict";
(() => {
  const form = document.getElementById("sql");
  if (!form) return;
  const rows = document.getElementById("records"), box = document.getElementById("rows"), head = box.querySelector("thead tr");
  const progress = document.getElementById("progress"), notes = document.getElementById("notes"), stop = form.querySelector("[data-stop]");
  const ROWS_MAX = 1000;
  const isQuery = (text) => /^\s*(select|print)\b/i.test(text.replace(/--[^\n]*|\/\*[\s\S]*?\*\//g, " "));
  let source = null;

  const end = (text) => {
    if (source) source.close();
    source = null;
    stop.hidden = true;
    progress.classList.remove("live");
    if (text !== undefined) progress.textContent = text;
  };
  const begin = () => {
    end("");
    document.getElementById("results").replaceChildren();
    rows.replaceChildren();
    head.replaceChildren();
    notes.replaceChildren();
    box.hidden = false;
    stop.hidden = false;
    progress.classList.add("live");
    const fields = new URLSearchParams({ sql: form.elements.sql.value, start: form.elements.start.value, as: "html" });
    source = new EventSource(form.dataset.api + "/search?" + fields);
    const read = (event) => JSON.parse(event.data);
    source.addEventListener("begun", (event) => { progress.textContent = read(event).said; });
    source.addEventListener("columns", (event) => {
      for (const name of read(event).columns) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = name;
        head.append(cell);
      }
    });
    source.addEventListener("found", (event) => {
      const got = read(event);
      rows.insertAdjacentHTML("beforeend", got.html);
      while (rows.rows.length > ROWS_MAX) rows.firstElementChild.remove();
      progress.textContent = got.said;
    });
    source.addEventListener("done", (event) => end(read(event).said));
    source.addEventListener("failed", (event) => {
      const got = read(event), line = document.createElement("p");
      end("");
      box.hidden = rows.rows.length === 0;
      line.className = "note bad said";
      line.textContent = got.message + (got.advice ? " " + got.advice : "");
      notes.append(line);
    });
    source.onerror = () => end(form.dataset.lost);
  };
  form.addEventListener("submit", (event) => {
    if (!isQuery(form.elements.sql.value)) return end("");
    event.preventDefault();
    begin();
  });
  stop.addEventListener("click", () => end());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && source) end();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.contains(event.target)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("button.main"));
    }
  });
})();
