"use strict";
(() => {
  const value = (row, i) => {
    const cell = row.cells[i];
    const sort = cell.dataset.sort;
    return sort === undefined ? cell.textContent.trim().toLowerCase() : Number(sort);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.title = "Sort by this column";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].filter((row) => !row.classList.contains("total"));
        const totals = [...body.rows].filter((row) => row.classList.contains("total"));
        rows.sort((a, b) => compare(value(a, i), value(b, i)) * (down ? -1 : 1));
        body.append(...rows, ...totals);
      });
    });
  }
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest ? event.target.closest("figure svg [aria-label][aria-roledescription]") : null;
    const label = mark && !mark.querySelector("[aria-label]") ? mark.getAttribute("aria-label") : null;
    if (!label || mark.classList.contains("mark-group") || /container|legend|axis/.test(mark.getAttribute("aria-roledescription"))) { hide(); return; }
    tip.textContent = label;
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
  });
  document.addEventListener("pointerleave", hide);
})();
