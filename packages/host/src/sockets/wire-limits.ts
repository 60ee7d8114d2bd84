import type { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import type { ByteReservation } from '@sibyl/server-kit';

/** An upgrade request; Engine.IO adds the WebSocket once it has accepted it. */
type UpgradeRequest = IncomingMessage & { readonly websocket?: EventEmitter };

/** Limits what a WebSocket costs below its packets, from its first byte. */
export function limitWire(
  request: UpgradeRequest,
  wire: Duplex,
  reservation: ByteReservation,
): void {
  pauseWhileUnread(wire);
  limitReceived(wire, reservation);
  request.websocket?.on('message', () => reservation.release());
  // A client that was refused could keep its side of the connection open for ever.
  if (!request.websocket) wire.once('finish', () => wire.destroy());
}

/**
 * Reads nothing more from a client that reads nothing. WebSocket pings and probes are answered without packets, so no other
 * limit counts the answers.
 */
function pauseWhileUnread(wire: Duplex): void {
  wire.on('data', () => {
    if (wire.writableNeedDrain) wire.pause();
  });
  wire.on('drain', () => wire.resume());
}

/** Counts what has arrived of a message or body until it is complete; disconnects the client if that is too much. */
export function limitReceived(source: Readable, reservation: ByteReservation): void {
  // Before the listener that completes the message.
  source.prependListener('data', (chunk: Buffer) => {
    if (reservation.resize(reservation.bytes + chunk.length) !== undefined) source.destroy();
  });
  source.once('close', () => reservation.release());
}
