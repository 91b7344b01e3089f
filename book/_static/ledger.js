// The ledger's tables: filter by words and by verdict (tables.js sorts them). Without JavaScript they are plain tables.
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
});
