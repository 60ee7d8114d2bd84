import { EventEmitter } from 'node:events';
import { describe, expect, it } from 'vitest';
import { usedMemory } from '../../test/support/used-memory.js';
import { MemoryEventBus } from '../bus/event-bus.js';
import { type Connection, Inbox } from './connections.js';
import { SocketBacklog, WriteLimit } from './write-limit.js';

const MB = 1024 ** 2;

/** Opens a connection that reads nothing: its data stays in memory until it closes. */
function openStalled(backlog: SocketBacklog) {
  const emitter = Object.assign(new EventEmitter(), { readyState: 'open' });
  const state = { isOpen: true, held: [] as string[] };
  const close = () => {
    state.isOpen = false;
    state.held = [];
    emitter.emit('close');
  };
  new WriteLimit(emitter as unknown as Connection, { stallMs: 1000, backlog, drop: close });
  const write = (data: string) => {
    if (state.isOpen) state.held.push(data);
    emitter.emit('packetCreate', { data });
  };
  return { state, write, close, flush: () => emitter.emit('flush') };
}

/** Creates a string that shares no memory with others. */
const newText = (length: number) => Buffer.alloc(length, 'x').toString('latin1');

describe('SocketBacklog', () => {
  it('drops only the connection with the most unread data', () => {
    const backlog = new SocketBacklog(MB);
    const [slow, slower, healthy] = [1, 2, 3].map(() => openStalled(backlog));
    slow?.write(newText(200_000));
    slower?.write(newText(250_000));
    healthy?.write(newText(50_000));
    healthy?.flush();
    expect(backlog.bytes).toBe(900_000);
    healthy?.write(newText(100_000));
    expect([slow, slower, healthy].map((one) => one?.state.isOpen)).toEqual([true, false, true]);
    expect(backlog.bytes).toBe(600_000);
    slow?.close();
    healthy?.close();
    expect(backlog.bytes).toBe(0);
  });

  it('keeps 500 connections that read nothing within 64 MB together', async () => {
    const backlog = new SocketBacklog(64 * MB);
    const before = usedMemory();
    const connections = Array.from({ length: 500 }, () => openStalled(backlog));
    for (let i = 0; i < 10; i++)
      for (const { write } of connections) {
        write(newText(90_000));
        expect(backlog.bytes).toBeLessThanOrEqual(64 * MB);
      }
    // 450 MB were written.
    await expect.poll(() => usedMemory() - before).toBeLessThan(80);
    expect(connections.some(({ state }) => state.isOpen)).toBe(true);
  });
});

describe('Inbox', () => {
  it('keeps at most 1 MB of events for a client that is catching up', async () => {
    const bus = new MemoryEventBus();
    const session = { owner: 'did:key:a', sessionId: 's' };
    let full = 0;
    const inbox = new Inbox(bus, session, () => {
      full += 1;
    });
    const before = usedMemory();
    for (let i = 0; i < 400; i++) {
      const payload = { sessionId: 's', requestId: 'r', step: newText(100_000) };
      bus.publish(session, { event: 'router_update', payload });
    }
    expect(full).toBe(1);
    await expect.poll(() => usedMemory() - before).toBeLessThan(10);
    inbox.close();
  });
});
