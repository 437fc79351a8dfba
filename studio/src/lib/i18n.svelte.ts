// Messages: a key in, a sentence in the chosen language out. A test checks that both files have the same keys.
import en from "../messages/en.json";
import zh from "../messages/zh.json";

export type Language = "en" | "zh";
export type Key = keyof typeof en;

const MESSAGES: Record<Language, Record<string, string>> = { en, zh };
const STORED = "clearhead.language";

function first(): Language {
  const kept = localStorage.getItem(STORED);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.startsWith("zh") ? "zh" : "en";
}

class Speech {
  language = $state<Language>(first());

  choose(language: Language): void {
    this.language = language;
    localStorage.setItem(STORED, language);
    document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  }
}

export const speech = new Speech();
speech.choose(speech.language);

/** `t("step.of", {n: 3})` fills `{n}`. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const sentence = MESSAGES[speech.language][key] ?? key;
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
}

/** For keys that come from the server: its own word stands where the page has none. */
export function known(key: string, otherwise: string): string {
  return MESSAGES[speech.language][key] ?? otherwise;
}
