/** PostgreSQL rejects payloads of 8,000 bytes and more. */
const MAX_PAYLOAD_BYTES = 7_500;

/** The sender, the position of this piece and the number of pieces, and the text. */
const PIECE = /^([0-9a-f]+) (\d+)\/(\d+) (.*)$/s;

/** A message as JSON: its topic and its payload. */
export type MessageText = string;

/** Messages of one sender that arrived together. */
export interface ReceivedBatch {
  readonly from: string;
  readonly messages: readonly (readonly [topic: string, payload: unknown])[];
}

/** Joins messages and divides them into payloads of notifications; a large message takes several. */
export function toNotifications(from: string, messages: readonly MessageText[]): string[] {
  const pieces = divide(`[${messages.join(',')}]`, MAX_PAYLOAD_BYTES);
  return pieces.map((piece, i) => `${from} ${i + 1}/${pieces.length} ${piece}`);
}

/** Divides a text into pieces of at most `maxBytes` bytes each, between characters. */
function divide(text: string, maxBytes: number): string[] {
  const buffer = new Uint8Array(maxBytes);
  const encoder = new TextEncoder();
  const pieces: string[] = [];
  for (let rest = text; rest.length > 0; ) {
    const { read } = encoder.encodeInto(rest, buffer);
    pieces.push(rest.slice(0, read));
    rest = rest.slice(read);
  }
  return pieces;
}

/**
 * Joins the pieces of batches again. PostgreSQL delivers the notifications of one transaction together and in order, so
 * there is never more than one unfinished batch.
 */
export class NotificationReader {
  private unfinished: { readonly from: string; readonly pieces: string[] } | undefined;

  /** Returns a batch once it is complete; throws a SyntaxError for anything that no host sends. */
  read(payload: string): ReceivedBatch | undefined {
    const [, from, position, count, text] = PIECE.exec(payload) ?? [];
    if (from === undefined || text === undefined)
      throw new SyntaxError('Not a message between hosts');
    const pieces = position === '1' ? [] : this.continueBatch(from, Number(position));
    // The beginning was sent before this host listened.
    if (!pieces) return undefined;
    pieces.push(text);
    if (pieces.length < Number(count)) {
      this.unfinished = { from, pieces };
      return undefined;
    }
    this.unfinished = undefined;
    return { from, messages: JSON.parse(pieces.join('')) };
  }

  /** Forgets an unfinished batch, whose end was lost with the connection. */
  reset(): void {
    this.unfinished = undefined;
  }

  private continueBatch(from: string, position: number): string[] | undefined {
    const { unfinished } = this;
    const continues = unfinished?.from === from && unfinished.pieces.length === position - 1;
    return continues ? unfinished.pieces : undefined;
  }
}
