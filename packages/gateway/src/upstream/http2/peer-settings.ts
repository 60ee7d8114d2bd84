import {
  DEFAULT_MAX_FRAME,
  DEFAULT_WINDOW,
  ErrorCode,
  MAX_WINDOW,
  ProtocolFault,
  Setting,
} from './protocol.js';

const ENTRY_BYTES = 6;

/** What the other side allows. */
export class PeerSettings {
  maxStreams = Number.POSITIVE_INFINITY;
  /** How much a stream may send before it is allowed more. */
  window = DEFAULT_WINDOW;
  maxFrame = DEFAULT_MAX_FRAME;

  take(payload: Buffer): void {
    if (payload.length % ENTRY_BYTES !== 0) throw malformed();
    for (let at = 0; at < payload.length; at += ENTRY_BYTES) {
      this.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
    }
  }

  private set(setting: number, value: number): void {
    if (setting === Setting.maxConcurrentStreams) this.maxStreams = value;
    if (setting === Setting.initialWindow) this.window = within(value, 0, MAX_WINDOW);
    if (setting === Setting.maxFrame) this.maxFrame = within(value, DEFAULT_MAX_FRAME, 0xffffff);
  }
}

function within(value: number, least: number, most: number): number {
  if (value < least || value > most) throw malformed();
  return value;
}

function malformed(): ProtocolFault {
  return new ProtocolFault('the settings of the other side make no sense', ErrorCode.frameSize);
}
