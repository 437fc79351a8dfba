// Errors, shown at the top of the page until closed or until the same action succeeds; the page keeps working.
import { Refusal } from "./api";
import type { Key } from "./i18n.svelte";

class Report {
  messages = $state<Record<string, string>>({}); // by what failed: "open", "trace", "start", ...
  offline = $state(false);
  locked = $state(false); // the server asks for a key this browser does not have
  note = $state<Key | "">(""); // nothing is wrong, but something happened

  /** Run something that talks to the server; a refusal is shown, never thrown. `source` names what is tried: its
   * own success takes its message away, and nothing else's does. */
  async attempt<T>(source: string, work: () => Promise<T>): Promise<T | undefined> {
    try {
      const result = await work();
      this.offline = this.locked = false;
      this.clear(source);
      return result;
    } catch (error) {
      if ((error as Error).name === "AbortError") return undefined;
      if (!(error instanceof Refusal)) throw error;
      this.tell(source, error);
      return undefined;
    }
  }

  tell(source: string, error: Refusal): void {
    this.offline = error.status === 0;
    this.locked = error.status === 401;
    if (!this.offline && !this.locked) this.messages[source] = error.message;
  }

  clear(source: string): void {
    delete this.messages[source];
  }
}

export const report = new Report();
