// The key in the address that `clearhead studio` printed: kept for this browser, and taken out of the address, so
// that it is not in the history, in a bookmark or in a link that somebody shares.

const STORED = "clearhead.key";

/** The key in an address, and the address without it: `#key=K`, `#key=K&/attention/x`, or `?key=K`. */
export function split(search: string, hash: string): { key: string | null; search: string; hash: string } {
  const behind = /^#key=([^&]+)(?:&(.*))?$/.exec(hash);
  if (behind) return { key: decodeURIComponent(behind[1]), search, hash: behind[2] ? `#${behind[2]}` : "" };
  const words = new URLSearchParams(search);
  const key = words.get("key");
  if (!key) return { key: null, search, hash };
  words.delete("key");
  return { key, search: words.size ? `?${words}` : "", hash };
}

/** Whether the address held a key. */
export function takeKey(): boolean {
  const found = split(location.search, location.hash);
  if (!found.key) return false;
  keepKey(found.key);
  history.replaceState(null, "", location.pathname + found.search + found.hash);
  return true;
}

export const keepKey = (key: string): void => localStorage.setItem(STORED, key.trim());
export const knownKey = (): string | null => localStorage.getItem(STORED);
