// The ledger's tables: filter by words and by verdict, sort by column. Without JavaScript they are plain tables.
document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll(".nbs-ledger table")];
  if (!tables.length) return;
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  const verdictOf = (row) => row.querySelector(".nbs-verdict").textContent.trim();

  const tools = document.createElement("form");
  tools.className = "nbs-ledger-tools";
  tools.innerHTML =
    '<label>Find <input type="search" placeholder="theorem, margin, zhou-thm-3.2 …"></label>' +
    '<label>Verdict <select><option value="">all</option></select></label><output aria-live="polite"></output>';
  const [words, verdict, count] = ["input", "select", "output"].map((name) => tools.querySelector(name));
  for (const word of new Set(rows.map(verdictOf))) verdict.add(new Option(word, word));
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word)) || (verdict.value && verdictOf(row) !== verdict.value);
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} statements`;
  };
  tools.addEventListener("input", filter);
  tools.addEventListener("submit", (event) => event.preventDefault());
  const holder = tables[0].closest("section");
  holder.parentElement.insertBefore(tools, holder);
  filter();

  const order = new Intl.Collator("en", { numeric: true });
  for (const table of tables) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        // up, down, as in the paper
        const next = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] || "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        if (next !== "none") head.setAttribute("aria-sort", next);
        const text = (row) => row.cells[column].textContent.trim();
        const sorted = [...original];
        if (next !== "none") sorted.sort((a, b) => order.compare(text(a), text(b)));
        if (next === "descending") sorted.reverse();
        body.append(...sorted);
      });
    });
  }
});
