// Searches, and templates of records, that are kept in this browser: a list of links, and a form's button that adds one. Pages work without this file.
"use strict";
(() => {
  const list = document.getElementById("saved"), save = document.querySelector("[data-save]");
  if (!list || !save) return;
  const name = "barnabas-searches:" + location.pathname, KEPT_MAX = 20;
  // The fields that make a search worth keeping, and its name; the others are kept with them.
  const titles = list.dataset.titles.split(" ");
  const title = (query) => {
    const fields = new URLSearchParams(query);
    return titles.map((field) => (fields.get(field) || "").trim()).filter(Boolean).join(" · ").slice(0, 80);
  };
  const kept = () => {
    try {
      const found = JSON.parse(localStorage.getItem(name));
      return Array.isArray(found) ? found.filter((query) => typeof query === "string" && title(query)) : [];
    } catch {
      return [];
    }
  };
  const keep = (searches) => {
    try {
      localStorage.setItem(name, JSON.stringify(searches.slice(0, KEPT_MAX)));
    } catch { /* a browser that keeps nothing */ }
    show();
  };
  const show = () => {
    const searches = kept();
    list.hidden = searches.length === 0;
    list.replaceChildren(...searches.map((query) => {
      const item = document.createElement("li"), link = document.createElement("a"), remove = document.createElement("button");
      link.href = "?" + query;
      link.textContent = title(query);
      remove.type = "button";
      remove.className = "plain";
      remove.textContent = "×";
      remove.setAttribute("aria-label", list.dataset.remove + " " + title(query));
      remove.addEventListener("click", () => keep(kept().filter((other) => other !== query)));
      item.append(link, " ", remove);
      return item;
    }));
  };
  save.hidden = false;
  save.addEventListener("click", () => {
    const asked = new URLSearchParams();
    for (const [field, value] of new FormData(save.form)) if (value && field !== "until" && field !== "stamp") asked.append(field, value);
    const query = asked.toString();
    if (title(query)) keep([query, ...kept().filter((other) => other !== query)]);
  });
  show();
})();
