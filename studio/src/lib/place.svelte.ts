// Where the page is: a screen, the model in hand and what is shown of it, kept in the address, so that back,
// forward, a bookmark, a shared link and a reload all work.
import { parsed, SCREENS, written, type Params, type Screen } from "./address";
import { takeKey } from "./key";

export { SCREENS, type Screen };
const LONG = 2000; // letters; a longer text is kept beside the address, for this tab alone
const BESIDE = "clearhead.long.";

class Place {
  screen = $state<Screen>("home");
  model = $state<string>("");
  params = $state.raw<Params>({});
  /** Counts arrivals: screens react to it, whether a link, the address bar or the back button led here. */
  arrival = $state(0);
  /** What another screen asks this one to show; read once on arrival. */
  errand: Record<string, any> = {};
  private late: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    takeKey();
    this.read();
    addEventListener("hashchange", () => {
      if (takeKey()) location.reload(); // another server was started, and its address pasted here
      else this.read();
    });
  }

  go(screen: Screen, model: string = this.model, errand: Record<string, any> = {}, params: Params = {}): void {
    this.flush();
    const hash = written({ screen, model, params: shortened(params) });
    this.errand = errand;
    if (location.hash !== hash) history.pushState(null, "", hash);
    this.read();
  }

  /** What is shown now, put into the address without a step in the history. */
  remember(params: Params): void {
    clearTimeout(this.late);
    this.params = params;
    this.late = setTimeout(() => this.flush(), 150);
  }

  /** An address of this place, to be shared. */
  private flush(): void {
    if (this.late === undefined) return;
    clearTimeout(this.late);
    this.late = undefined;
    const { screen, model, params } = this;
    history.replaceState(null, "", written({ screen, model, params: shortened(params) }));
  }

  private read(): void {
    clearTimeout(this.late);
    this.late = undefined;
    const { screen, model, params } = parsed(location.hash);
    this.screen = screen;
    if (model) this.model = model;
    this.params = whole(params);
    this.arrival++;
  }
}

function shortened(params: Params): Params {
  if ((params.text ?? "").length <= LONG) return params;
  const { text, ...rest } = params;
  sessionStorage.setItem(BESIDE + "text", text);
  return { ...rest, beside: "text" };
}

function whole(params: Params): Params {
  const { beside, ...rest } = params;
  const text = beside ? sessionStorage.getItem(BESIDE + beside) : null;
  return text === null ? rest : { ...rest, text };
}

export const place = new Place();
