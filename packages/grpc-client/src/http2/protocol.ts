/** Frame types of RFC 9113. */
export const FrameType = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Frame flags; the meaning of the first depends on the frame type. */
export const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

export const Setting = {
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindow: 4,
  maxFrame: 5,
} as const;

/** Error codes of RST_STREAM and GOAWAY. */
export const ErrorCode = {
  none: 0,
  protocol: 1,
  flowControl: 3,
  frameSize: 6,
  refusedStream: 7,
  cancel: 8,
  compression: 9,
  enhanceYourCalm: 11,
  inadequateSecurity: 12,
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];

/** Values before the settings of the peer arrive. */
export const DEFAULT_WINDOW = 65_535;
export const DEFAULT_MAX_FRAME = 16_384;
export const MAX_WINDOW = 0x7fffffff;

/** The peer violated the protocol, so the connection has to close. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';

  constructor(
    message: string,
    readonly code: ErrorCode = ErrorCode.protocol,
  ) {
    super(message);
  }
}

const SETTING_BYTES = 6;

/** The limits the peer sets for us. */
export class PeerSettings {
  maxStreams = Number.POSITIVE_INFINITY;
  /** Initial window of a stream. */
  window = DEFAULT_WINDOW;
  maxFrame = DEFAULT_MAX_FRAME;

  update(payload: Buffer): void {
    if (payload.length % SETTING_BYTES !== 0) throw invalidSettings();
    for (let at = 0; at < payload.length; at += SETTING_BYTES) {
      this.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
    }
  }

  private set(setting: number, value: number): void {
    if (setting === Setting.maxConcurrentStreams) this.maxStreams = value;
    if (setting === Setting.initialWindow) this.window = checkRange(value, 0, MAX_WINDOW);
    if (setting === Setting.maxFrame)
      this.maxFrame = checkRange(value, DEFAULT_MAX_FRAME, 0xffffff);
  }
}

function checkRange(value: number, min: number, max: number): number {
  if (value < min || value > max) throw invalidSettings();
  return value;
}

function invalidSettings(): ProtocolError {
  return new ProtocolError('the peer sent invalid settings', ErrorCode.frameSize);
}
