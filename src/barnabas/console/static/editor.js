// Turns a textarea with data-editor="yaml" or "sql" into an editor. What is wrong, as the server has found it while somebody
// types, is marked at its line. Pages work without this file: the textarea stays, and checks run when it is sent.
"use strict";
(() => {
  const area = document.querySelector("textarea[data-editor]");
  if (!area || !window.CodeMirror) return;
  // Names, functions and keywords of SQL, as the server knows them.
  const words = (area.dataset.words || "").split(" ").filter(Boolean);
  const complete = (editor) => {
    const place = editor.getCursor(), line = editor.getLine(place.line).slice(0, place.ch);
    const typed = /[A-Za-z_][\w.]*$/.exec(line), begun = typed ? typed[0].toUpperCase() : "";
    return {
      list: words.filter((word) => word.toUpperCase().startsWith(begun)).slice(0, 50),
      from: CodeMirror.Pos(place.line, place.ch - begun.length),
      to: place,
    };
  };
  const editor = CodeMirror.fromTextArea(area, {
    mode: area.dataset.editor === "sql" ? "text/x-sql" : "yaml",
    lineNumbers: true,
    lineWrapping: true,  // what scrolls sideways cannot be scrolled by keyboard
    indentUnit: 2,
    tabSize: 2,
    viewportMargin: Infinity,
    gutters: ["CodeMirror-linenumbers", "mistakes"],
    // Tab leaves the editor, so that the keyboard alone is enough; Ctrl-] and Ctrl-[ indent.
    extraKeys: { Tab: false, "Shift-Tab": false, "Ctrl-Space": "autocomplete" },
    hintOptions: { hint: complete, completeSingle: false },
    screenReaderLabel: area.labels[0] ? area.labels[0].textContent : area.name,
  });
  area.removeAttribute("required");  // the hidden textarea could not be focused
  editor.on("change", () => {
    editor.save();
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
  if (words.length) {
    editor.on("inputRead", (_, change) => {
      if (/^[A-Za-z_]$/.test(change.text[0])) editor.showHint();
    });
  }
  const mark = () => {
    editor.clearGutter("mistakes");
    for (let line = 0; line < editor.lineCount(); line++) editor.removeLineClass(line, "wrap", "mistaken");
    for (const found of document.querySelectorAll("#checked [data-line]")) {
      const line = Number(found.dataset.line) - 1;
      if (!(line >= 0 && line < editor.lineCount())) continue;
      const sign = document.createElement("span");
      sign.className = "mistake-sign";
      sign.textContent = "!";
      sign.title = found.textContent;
      editor.setGutterMarker(line, "mistakes", sign);
      editor.addLineClass(line, "wrap", "mistaken");
    }
  };
  document.body.addEventListener("htmx:afterSwap", mark);
  document.addEventListener("click", (event) => {
    const found = event.target.closest("#checked [data-line]");
    if (!found) return;
    editor.focus();
    editor.setCursor(Number(found.dataset.line) - 1, 0);
  });
  mark();
})();
