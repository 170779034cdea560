
// The table: its headings sort it, a search leaves the rows that match.
function table() {
  const heads = [...$("table").tHead.rows[0].cells], body = $("table").tBodies[0], rows = [...body.rows];
  function sort(i) {
    const number = i > 0, was = heads[i].getAttribute("aria-sort");
    const down = was ? was === "ascending" : number;
    for (const h of heads) h.removeAttribute("aria-sort");
    heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = r => number ? Number(r.cells[i].dataset.v) : r.cells[0].textContent;
    const keyed = rows.map(r => [key(r), r]);
    keyed.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (down ? -1 : 1));
    body.append(...keyed.map(k => k[1]));
  }
  heads.forEach((h, i) => h.firstElementChild.addEventListener("click", () => sort(i)));
  listeners.push(() => {
    let shown = 0;
    for (const r of rows) {
      r.hidden = query !== "" && !matches(r.cells[0].textContent);
      if (!r.hidden) shown++;
    }
    return plural(shown, "row") + " of the table";
  });
}
