// Server-sent events in a stream of text: pieces in, whole events out. Used where EventSource cannot be: it
// sends no body.

export interface Message {
  id?: string;
  event: string;
  data: any;
}

/** Feed it pieces as they arrive; it returns the events that are complete. */
export function splitter(): (piece: string) => Message[] {
  let rest = "";
  return (piece) => {
    const parts = (rest + piece).replace(/\r\n?/g, "\n").split("\n\n");
    rest = parts.pop() ?? "";
    return parts.map(parse).filter((m): m is Message => m !== null);
  };
}

function parse(block: string): Message | null {
  const message: Message = { event: "message", data: null };
  const lines: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") lines.push(value);
    else if (field === "event") message.event = value;
    else if (field === "id") message.id = value;
  }
  if (!lines.length) return null; // a comment that keeps the connection alive
  message.data = JSON.parse(lines.join("\n"));
  return message;
}
