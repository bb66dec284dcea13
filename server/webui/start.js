/* Runs before the first paint, so that a chosen theme does not flash. */
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  /* without storage the theme is the system's */
}
