import type { Audience, EventBus, Listener } from '../../events/event-bus.js';
import type { ServerEvent } from '../../events/server-event.js';

/** Events that wait for somebody who is still catching up. */
const MAX_WAITING = 1000;

/** Takes an audience's events from the moment it is made, and keeps them until they are wanted. */
export class Inbox {
  readonly #leave: () => void;
  #waiting: ServerEvent[] = [];
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
    this.#deliver = deliver;
    for (const event of waiting) deliver(event);
  }

  close(): void {
    this.#leave();
    this.#waiting = [];
  }

  #keep(event: ServerEvent): void {
    if (this.#waiting.push(event) > MAX_WAITING) this.onFull();
  }
}
