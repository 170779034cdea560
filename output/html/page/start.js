
const drawings = [flameGraph(), timeline(), heatMap()].filter(d => d);
table();

$("search").addEventListener("input", () => {
  query = $("search").value.trim().toLowerCase();
  const texts = listeners.map(l => l()).filter(t => t);
  $("found").textContent = query === "" ? "" : texts.join("; ");
});
document.addEventListener("keydown", e => {
  const search = $("search");
  if (e.key === "/" && e.target !== search && !e.ctrlKey && !e.altKey && !e.metaKey && e.target.tagName !== "SELECT") {
    e.preventDefault();
    search.focus();
    search.select();
  } else if (e.key === "Escape" && e.target === search) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawings.forEach(draw => draw()));
