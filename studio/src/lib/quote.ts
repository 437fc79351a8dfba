// The command that does the same in a terminal, quoted for a POSIX shell.

export function shell(word: string): string {
  return /^[\w./:=,@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export const command = (...words: (string | number | null | undefined | false)[]): string =>
  ["clearhead", ...words.filter((w) => w !== null && w !== undefined && w !== false && w !== "")]
    .map((w) => shell(String(w)))
    .join(" ");
