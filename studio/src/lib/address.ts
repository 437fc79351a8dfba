// What a screen shows as an address, and back: `#/attention/demo-1a2b3c?text=...&layer=1`.

export const SCREENS = ["home", "attention", "generate", "steps", "train", "compare", "families"] as const;
export type Screen = (typeof SCREENS)[number];
export type Params = Record<string, string>;
export interface Address {
  screen: Screen;
  model: string; // empty: none is named
  params: Params;
}

/** An address that cannot be read leads home. */
export function parsed(hash: string): Address {
  const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const [, screen, model = ""] = path.split("/");
  const known = SCREENS.find((s) => s === screen);
  try {
    if (known) return { screen: known, model: decodeURIComponent(model), params: Object.fromEntries(new URLSearchParams(query)) };
  } catch {
    // half an escape, such as %E0%A4%A
  }
  return { screen: "home", model: "", params: {} };
}

export function written({ screen, model, params }: Address): string {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "")).toString();
  return `#/${screen}${model ? `/${encodeURIComponent(model)}` : ""}${query ? `?${query}` : ""}`;
}

/** A whole number of an address, or what stands in its place. */
export function whole(value: string | undefined, otherwise: number): number {
  return value !== undefined && /^\d{1,9}$/.test(value) ? Number(value) : otherwise;
}
