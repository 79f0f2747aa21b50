/* Sets the colours before the first paint: the chosen ones, or the system's. It is a file of its own
 * because the page's policy allows no script inside the page, and modules run too late. */
const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");

function themeChoice() {
  try {
    return localStorage.getItem("reel/theme") || "auto";
  } catch (e) {
    return "auto"; /* a browser that keeps nothing */
  }
}

function applyTheme(choice) {
  const dark = choice === "dark" || (choice !== "light" && darkSystem.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.dataset.choice = choice;
}

darkSystem.addEventListener("change", () => applyTheme(document.documentElement.dataset.choice));
applyTheme(themeChoice());
