// The look: light or dark, and the palette of the matrices. Kept between visits.
import type { PaletteName } from "./palette";

export type Theme = "auto" | "light" | "dark";
export type Chosen = "auto" | "blue" | "viridis" | "cividis";

class Look {
  theme = $state<Theme>((localStorage.getItem("clearhead.theme") as Theme) ?? "auto");
  chosen = $state<Chosen>((localStorage.getItem("clearhead.palette") as Chosen) ?? "auto");
  systemDark = $state(matchMedia("(prefers-color-scheme: dark)").matches);
  dark = $derived(this.theme === "dark" || (this.theme === "auto" && this.systemDark));
  palette = $derived<PaletteName>(this.chosen === "auto" ? (this.dark ? "viridis" : "blue") : this.chosen);
  differences = $derived<PaletteName>(this.dark ? "changeDark" : "change");

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => (this.systemDark = e.matches));
  }

  set(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem("clearhead.theme", theme);
  }

  paint(chosen: Chosen): void {
    this.chosen = chosen;
    localStorage.setItem("clearhead.palette", chosen);
  }
}

export const look = new Look();
export const still = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;
