import { randomUUID } from 'node:crypto';

/** Gives every tool call of a conversation an id of its own: some models repeat theirs or send none. */
export class CallIds {
  private readonly taken = new Set<string>();

  take(wanted: string): string {
    const id = wanted === '' || this.taken.has(wanted) ? newId() : wanted;
    this.taken.add(id);
    return id;
  }
}

/** Without dashes: some providers take at most 40 characters. */
function newId(): string {
  return `call_${randomUUID().replaceAll('-', '')}`;
}
