// What went wrong, said once at the top of the page; the page goes on.
import { Refusal } from "./api";
import type { Key } from "./i18n.svelte";

class Report {
  message = $state("");
  offline = $state(false);
  note = $state<Key | "">(""); // nothing is wrong, but something happened

  /** Run something that talks to the server; a refusal is shown, never thrown. */
  async attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      const result = await work();
      this.offline = false;
      this.message = "";
      return result;
    } catch (error) {
      if ((error as Error).name === "AbortError") return undefined;
      if (error instanceof Refusal && error.status === 0) this.offline = true;
      else if (error instanceof Refusal) this.message = error.message;
      else throw error;
      return undefined;
    }
  }

  clear(): void {
    this.message = "";
  }
}

export const report = new Report();
