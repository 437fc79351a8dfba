// Where the page is: a screen and the model in hand, kept in the address, so that back, forward, a bookmark and
// a reload all work.

export const SCREENS = ["home", "attention", "generate", "steps", "train", "compare", "families"] as const;
export type Screen = (typeof SCREENS)[number];

class Place {
  screen = $state<Screen>("home");
  model = $state<string>("");
  /** What another screen asks this one to show; read once on arrival. */
  errand = $state<Record<string, any>>({});

  constructor() {
    this.read();
    addEventListener("hashchange", () => this.read());
  }

  go(screen: Screen, model: string = this.model, errand: Record<string, any> = {}): void {
    this.errand = errand;
    location.hash = model ? `#/${screen}/${encodeURIComponent(model)}` : `#/${screen}`;
    this.read();
  }

  private read(): void {
    const [, screen, model] = location.hash.split("/");
    this.screen = SCREENS.find((s) => s === screen) ?? "home";
    if (model) this.model = decodeURIComponent(model);
  }
}

export const place = new Place();
