// Tables inside .nbs-sortable: a click on a column's head sorts by it, up, down, then as written. Without JavaScript they
// are plain tables. A cell's data-value, where it has one, is its number; rows without a value stay last.
document.addEventListener("DOMContentLoaded", () => {
  const order = new Intl.Collator("en", { numeric: true });
  for (const table of document.querySelectorAll(".nbs-sortable table")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const key = ({ cells }) => cells[column].dataset.value ?? cells[column].textContent.trim();
      const isNumber = original.some(({ cells }) => "value" in cells[column].dataset);
      const compare = isNumber ? (a, b) => a - b : order.compare;
      const isEmpty = (row) => (isNumber ? !("value" in row.cells[column].dataset) : ["", "–"].includes(key(row)));
      const button = document.createElement("button");
      button.type = "button";
      button.title = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] || "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next === "none") return body.append(...original);
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const filled = original.filter((row) => !isEmpty(row)).sort((a, b) => sign * compare(key(a), key(b)));
        body.append(...filled, ...original.filter(isEmpty));
      });
    });
  }
});
