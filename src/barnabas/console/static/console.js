// Pages work without this file. It copies, and shows streams of records as they arrive.
"use strict";
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no clipboard without HTTPS: the old way
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.classList.add("done");
  const before = button.textContent;
  button.textContent = "✓";
  setTimeout(() => { button.textContent = before; }, 1200);
});
// On a narrow screen the menu is a row that scrolls: what is open is in sight.
const current = document.querySelector(".menu a[aria-current]");
if (current) current.closest(".menu").scrollLeft = current.offsetLeft - 16;
