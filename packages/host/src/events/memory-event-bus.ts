import { type Audience, audienceName, type EventBus, type Listener } from './event-bus.js';
import type { ServerEvent } from './server-event.js';

/** Carries events within this process. */
export class MemoryEventBus implements EventBus {
  readonly #audiences = new Map<string, Set<Listener>>();

  publish(audience: Audience, event: ServerEvent): void {
    for (const listener of this.#audiences.get(audienceName(audience)) ?? []) listener(event);
  }

  subscribe(audience: Audience, listener: Listener): () => void {
    const name = audienceName(audience);
    // A listener of its own, so that the same function may subscribe twice and leave once.
    const member: Listener = (event) => listener(event);
    const members = this.#audiences.get(name) ?? new Set();
    this.#audiences.set(name, members.add(member));
    return () => {
      members.delete(member);
      if (members.size === 0 && this.#audiences.get(name) === members) this.#audiences.delete(name);
    };
  }
}
