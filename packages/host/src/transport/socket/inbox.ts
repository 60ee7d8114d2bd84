import type { Audience, EventBus, Listener } from '../../events/event-bus.js';
import type { ServerEvent } from '../../events/server-event.js';

/** What may wait for a client that is still catching up: events, and characters of their JSON. */
const MAX_WAITING = 1000;
const MAX_LENGTH = 1024 * 1024;

/** Takes an audience's events from the moment it is made, and keeps them until they are wanted. */
export class Inbox {
  readonly #leave: () => void;
  #waiting: ServerEvent[] = [];
  #length = 0;
  #isFull = false;
  #deliver: Listener = (event) => this.#keep(event);

  constructor(
    bus: EventBus,
    audience: Audience,
    private readonly onFull: () => void,
  ) {
    this.#leave = bus.subscribe(audience, (event) => this.#deliver(event));
  }

  /** Hands over what waits, then all that comes. */
  open(deliver: Listener): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#length = 0;
    this.#deliver = deliver;
    for (const event of waiting) deliver(event);
  }

  close(): void {
    this.#leave();
    this.#waiting = [];
    this.#length = 0;
  }

  #keep(event: ServerEvent): void {
    if (this.#isFull) return;
    this.#length += JSON.stringify(event.payload).length;
    if (this.#waiting.push(event) <= MAX_WAITING && this.#length <= MAX_LENGTH) return;
    this.#isFull = true;
    this.#waiting = [];
    this.onFull();
  }
}
