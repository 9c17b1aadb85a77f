// Searches and live tails: records come as rows of HTML that the server has made, with progress, until they are stopped.
"use strict";
(() => {
  const form = document.getElementById("ask");
  if (!form) return;
  const rows = document.getElementById("records"), progress = document.getElementById("progress");
  const notes = document.getElementById("notes"), stop = form.querySelector("[data-stop]");
  const ROWS_MAX = 500;
  let source = null, at = "";

  const choose = () => {
    for (const part of form.querySelectorAll("[data-for]")) part.hidden = part.dataset.for !== form.elements.from.value;
  };
  if (form.elements.from) {
    form.elements.from.addEventListener("change", choose);
    choose();
  }

  const end = (text) => {
    if (source) source.close();
    source = null;
    stop.hidden = true;
    for (const button of form.querySelectorAll("[data-stream]")) button.hidden = false;
    progress.classList.remove("live");
    if (text) progress.textContent = text;
  };

  const begin = (kind, again) => {
    end("");
    if (!again) {
      rows.replaceChildren();
      at = "";
    }
    notes.replaceChildren();
    const found = document.getElementById("found"), none = document.getElementById("none");
    if (found) found.hidden = false;
    if (none) none.remove();
    const fields = new URLSearchParams(new FormData(form));
    fields.set("as", "html");
    if (at) fields.set("at", at);
    source = new EventSource(form.dataset.api + "/" + kind + "?" + fields);
    stop.hidden = false;
    for (const button of form.querySelectorAll("[data-stream]")) button.hidden = true;
    progress.classList.add("live");
    const read = (event) => JSON.parse(event.data);
    const note = (kind, text) => {
      const line = document.createElement("p");
      line.className = "note " + kind;
      line.textContent = text;
      notes.append(line);
    };
    const reached = (got) => { if (got.at) at = Object.entries(got.at).map((one) => one.join(":")).join(","); };
    // Stopping, or beginning something else, is still possible while a tail waits.
    const beginLater = () => {
      end("");
      const wait = source = { close: () => {} };
      stop.hidden = false;
      for (const button of form.querySelectorAll("[data-stream]")) button.hidden = true;
      setTimeout(() => { if (source === wait) begin(kind, true); }, 3000);
    };
    source.addEventListener("found", (event) => {
      const got = read(event);
      reached(got);
      rows.insertAdjacentHTML(kind === "tail" ? "afterbegin" : "beforeend", got.html);
      while (rows.rows.length > ROWS_MAX) (kind === "tail" ? rows.lastElementChild : rows.firstElementChild).remove();
      if (got.said) progress.textContent = got.said;
    });
    source.addEventListener("progress", (event) => { progress.textContent = read(event).said; });
    source.addEventListener("begun", (event) => {
      reached(read(event));
      progress.textContent = read(event).said;
    });
    source.addEventListener("notes", (event) => { for (const text of read(event).notes) note("warn", text); });
    source.addEventListener("done", (event) => end(read(event).said));
    source.addEventListener("failed", (event) => {
      const got = read(event);
      end("");
      note("bad", got.message + (got.advice ? " " + got.advice : ""));
      progress.textContent = "";
      if (kind === "tail" && got.again) beginLater();
    });
    // Without an event of its own, the connection is gone. A search would begin anew: it is ended instead.
    source.onerror = () => {
      if (kind !== "tail") return end(form.dataset.lost);
      beginLater();
      progress.textContent = form.dataset.again;
    };
  };

  for (const button of form.querySelectorAll("[data-stream]")) {
    button.hidden = false;
    button.addEventListener("click", () => begin(button.dataset.stream));
  }
  stop.addEventListener("click", () => end(progress.textContent));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && source) end(progress.textContent); });
})();
