import { randomUUID } from 'node:crypto';
import type { ModelToolCall } from '../model.js';
import { faultOfKind } from '../provider-fault.js';

/** Characters that the calls of one answer may have: they are held in memory until they are complete. */
const MAX_CHARACTERS = 8 * 1024 * 1024;
/** What a call counts beside its text. */
const CALL_CHARACTERS = 10_000;

interface Draft {
  id: string;
  name: string;
  input: string;
  readonly index: unknown;
}

interface Piece {
  readonly index: unknown;
  readonly id: unknown;
  readonly name: unknown;
}

/** Puts tool calls together from their pieces, whatever a server leaves out. */
export class ToolCallAssembly {
  readonly #drafts: Draft[] = [];
  #characters = 0;

  add(piece: unknown): void {
    if (typeof piece !== 'object' || piece === null) return;
    const { index, id, function: called = {} } = piece as Record<string, unknown>;
    const { name, arguments: input } = (called ?? {}) as Record<string, unknown>;
    const before = this.#drafts.length;
    const draft = this.#draftOf({ index, id, name });
    if (this.#drafts.length > before) this.#count(CALL_CHARACTERS);
    draft.name ||= textOf(name);
    if (typeof input === 'string') draft.input += input;
    else if (typeof input === 'object' && input !== null) draft.input = JSON.stringify(input);
    this.#count(typeof input === 'string' ? input.length : draft.input.length);
  }

  #count(characters: number): void {
    this.#characters += characters;
    if (this.#characters > MAX_CHARACTERS)
      throw faultOfKind('server', 'the tool calls of the answer never end');
  }

  calls(): ModelToolCall[] {
    const named = this.#drafts.filter(({ name }) => name);
    return named.map(({ id, name, input }) => ({
      id: id || `call_${randomUUID()}`,
      name,
      input: input.trim() || '{}',
    }));
  }

  #draftOf({ index, id, name }: Piece): Draft {
    const found = this.#drafts.findLast((draft) => index === undefined || draft.index === index);
    if (found && !beginsAnother(found, { index, id, name })) {
      found.id ||= textOf(id);
      return found;
    }
    const draft = { id: textOf(id), name: '', input: '', index };
    this.#drafts.push(draft);
    return draft;
  }
}

/** Some servers number every call 0, and some number none: then a new id or a second name tells. */
function beginsAnother(draft: Draft, { index, id, name }: Piece): boolean {
  if (textOf(id) && draft.id) return id !== draft.id;
  return index === undefined && draft.name !== '' && textOf(name) !== '';
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
