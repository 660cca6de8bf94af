// Applies the chosen theme before anything is painted; without a choice the system decides.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("penstock.theme");
  } catch {
    // Storage may be forbidden; then the choice lasts until the page is closed.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
