import { type EventBus, type Listener, type Room, roomName } from './event-bus.js';
import type { ServerEvent } from './server-event.js';

/** Carries events within this process. */
export class MemoryEventBus implements EventBus {
  readonly #rooms = new Map<string, Set<Listener>>();

  publish(room: Room, event: ServerEvent): void {
    for (const listener of this.#rooms.get(roomName(room)) ?? []) listener(event);
  }

  subscribe(room: Room, listener: Listener): () => void {
    const name = roomName(room);
    // A listener of its own, so that the same function may subscribe twice and leave once.
    const member: Listener = (event) => listener(event);
    const members = this.#rooms.get(name) ?? new Set();
    this.#rooms.set(name, members.add(member));
    return () => {
      members.delete(member);
      if (members.size === 0 && this.#rooms.get(name) === members) this.#rooms.delete(name);
    };
  }
}
