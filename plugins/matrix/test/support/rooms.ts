import { addEvent, inviteOracle, type TestEvent, type TestHomeserver } from './homeserver.js';

export const ORACLE = '@oracle:test';
export const ALICE = '@alice:test';

/** A room with the oracle, seen by its people. */
export class Room {
  readonly id: string;

  constructor(
    private readonly home: TestHomeserver,
    members: readonly string[] = [ALICE],
  ) {
    this.id = inviteOracle(home, members);
  }

  get hasOracle(): boolean {
    return this.home.rooms.get(this.id)?.members.has(ORACLE) ?? false;
  }

  /** Sends a message; returns its id. */
  say(body: string, { sender = ALICE, thread, ...content }: Said = {}): string {
    const relation = thread && { 'm.relates_to': { rel_type: 'm.thread', event_id: thread } };
    return this.send(
      'm.room.message',
      { msgtype: 'm.text', body, ...relation, ...content },
      sender,
    );
  }

  send(type: string, content: object, sender = ALICE, more: Partial<TestEvent> = {}): string {
    return addEvent(this.home, this.id, { type, content, sender, ...more });
  }

  /** What the oracle has sent. */
  get answers(): TestEvent[] {
    return this.home.log.flatMap(({ roomId, event }) =>
      roomId === this.id && event?.sender === ORACLE && event.type === 'm.room.message'
        ? [event]
        : [],
    );
  }

  get texts(): string[] {
    return this.answers.map(({ content }) => content.body);
  }
}

interface Said {
  readonly sender?: string;
  /** The root of the thread. */
  readonly thread?: string;
  readonly [field: string]: unknown;
}
