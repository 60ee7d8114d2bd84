import type { ClientEventName, ServerEventName } from '@sibyl/protocol';
import { CallBox } from '../calls/call-box.js';
import { OracleClientError } from '../oracle-client-error.js';
import { Listeners } from './listeners.js';
import type { OpenSocket, SocketOptions } from './open-socket.js';
import type { ConnectionState, ServerEvent } from './session-events.js';

export type SocketParts = Pick<SocketOptions, 'url' | 'sessionId' | 'token'>;

/** The one socket of a session; its code is loaded when it is made. */
export class SessionSocket {
  readonly events = new Listeners<ServerEvent>();
  readonly calls = new CallBox();
  readonly states = new Listeners<ConnectionState>();
  #state: ConnectionState = 'connecting';
  #refusal: Error | undefined;
  #isClosed = false;
  #socket: OpenSocket | undefined;
  #unsent: { readonly name: ClientEventName; readonly payload: unknown }[] = [];

  constructor(parts: SocketParts) {
    this.#open(parts).catch((cause) => this.#enter('disconnected', cause));
  }

  get state(): ConnectionState {
    return this.#state;
  }

  emit(name: ClientEventName, payload: unknown): void {
    if (this.#socket) this.#socket.emit(name, payload);
    else this.#unsent.push({ name, payload });
  }

  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        if (this.#state === 'connecting') return;
        stop();
        if (this.#state === 'connected') resolve();
        else reject(this.#refused());
      };
      const stop = this.states.add(settle);
      settle();
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#socket?.close();
    this.#enter('disconnected', new Error('The connection was closed here'));
  }

  async #open(parts: SocketParts): Promise<void> {
    const { openSocket } = await import('./open-socket.js');
    if (this.#isClosed) return;
    const socket = openSocket({
      ...parts,
      onEvent: (name, data) => this.#receive(eventOf(name as ServerEventName, data)),
      onState: (state, refusal) => this.#enter(state, refusal),
    });
    for (const { name, payload } of this.#unsent) socket.emit(name, payload);
    this.#unsent = [];
    this.#socket = socket;
  }

  #receive(event: ServerEvent): void {
    const { name, payload } = event;
    if (name === 'browser_tool_call') this.calls.put({ kind: 'tool', call: payload });
    if (name === 'action_call') this.calls.put({ kind: 'action', call: payload });
    this.events.tell(event);
  }

  #enter(state: ConnectionState, refusal?: Error): void {
    this.#refusal = refusal;
    if (this.#state === state) return;
    this.#state = state;
    this.states.tell(state);
  }

  #refused(): OracleClientError {
    const cause = this.#refusal;
    const message = `No events: ${cause?.message ?? 'the host refuses the connection'}`;
    return new OracleClientError('connection_lost', message, { cause });
  }
}

/** Some payloads travel in an envelope that repeats the name (contract B5). */
function eventOf(name: ServerEventName, data: unknown): ServerEvent {
  const envelope = (data ?? {}) as { readonly eventName?: unknown; readonly payload?: unknown };
  const payload = envelope.eventName === name ? envelope.payload : data;
  return { name, payload } as ServerEvent;
}
