// What pages of records do beyond links and forms: a copy button beside each text.
// They say the same without it.
"use strict";
(() => {
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Only pages of this machine or of https may use the clipboard; all others select and copy.
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      const isDone = document.execCommand("copy");
      field.remove();
      return isDone;
    }
  }

  for (const place of document.querySelectorAll("[data-copies]")) {
    const source = document.getElementById(place.dataset.copies);
    if (!source?.textContent.trim()) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const data = source.querySelector(".data") ?? source;
      button.textContent = (await copied(data.textContent)) ? "Copied" : "Not copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    place.prepend(button, " ");
  }
})();
