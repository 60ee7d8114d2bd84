import type { JsonObject } from '@sibyl/protocol';

type Field = 'reasoning_content' | 'reasoning';
type Detail = Record<string, unknown>;

/** Keeps a step's reasoning as its server wants it back with the results of its tools. */
export class ReasoningRecord {
  #field: Field | undefined;
  #text = '';
  readonly #details: Detail[] = [];

  /** Reads a delta; what it returns is the new text, if any. */
  read(delta: Detail): string {
    if (Array.isArray(delta.reasoning_details)) delta.reasoning_details.forEach(this.#merge);
    const field = fieldOf(delta);
    const text = field ? (delta[field] as string) : '';
    if (text) this.#field ??= field;
    this.#text += text;
    return text;
  }

  dataFor(model: string): JsonObject | undefined {
    if (!this.#field && this.#details.length === 0) return undefined;
    return {
      model,
      message: {
        ...(this.#field && { [this.#field]: this.#text }),
        ...(this.#details.length > 0 && { reasoning_details: this.#details }),
      },
    };
  }

  /** Pieces of one block arrive one by one, but are taken back only as a whole. */
  #merge = (detail: Detail): void => {
    const last = this.#details.at(-1);
    const goesOn = last && last.type === detail.type && last.index === detail.index;
    if (!goesOn) {
      this.#details.push({ ...detail });
      return;
    }
    for (const [key, value] of Object.entries(detail)) {
      const isPiece = key === 'text' || key === 'summary' || key === 'data';
      if (isPiece && typeof value === 'string') last[key] = `${last[key] ?? ''}${value}`;
      else if (value !== null && value !== undefined) last[key] = value;
    }
  };
}

function fieldOf(delta: Detail): Field | undefined {
  if (typeof delta.reasoning_content === 'string') return 'reasoning_content';
  return typeof delta.reasoning === 'string' ? 'reasoning' : undefined;
}

/** The fields to send back with an assistant message; none if another model made it. */
export function replayedReasoning(data: JsonObject | undefined, model: string): object {
  return data?.model === model ? Object(data.message) : {};
}
