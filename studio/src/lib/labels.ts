// Token labels: how a token is labelled on an axis, and which labels fit.

export interface Token {
  text: string; // the stretch of the input it stands for
  id: number;
  start: number;
  end: number;
  special: boolean;
  label: string; // what an axis calls it; pieces of one character are numbered, as in 你①
}

export const label = (token: Token | undefined): string => token?.label ?? "";

/** The same for running text: spaces are spaces there, and a piece of a character is still only a piece. */
export function word(token: Token): string {
  if (/[①-⑨]$/.test(token.label) && token.label !== token.text) return token.label;
  return token.text.replace(/\n/g, "⏎\n") || token.label;
}

/** A whole answer: line breaks and lone spaces are shown as signs. */
export const visible = (text: string): string => (/^ +$/.test(text) ? text.replaceAll(" ", "␣") : text.replace(/\n/g, "⏎\n"));

export const isWide = (text: string): boolean =>
  /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef①-⑨·]+$/u.test(text);

/** Write every n-th label, so that each has `room` pixels. 1, 2, 5, 10, 20, ... */
export function every(pixels: number, room: number): number {
  if (pixels >= room) return 1;
  for (let unit = 1; ; unit *= 10)
    for (const step of [1, 2, 5]) if (step * unit * pixels >= room) return step * unit;
}

export function shortened(text: string, characters: number): string {
  const all = Array.from(text);
  return all.length <= characters ? text : all.slice(0, characters - 1).join("") + "…";
}
