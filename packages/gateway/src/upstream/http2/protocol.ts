/** The kinds of frame of RFC 9113. */
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

/** What a frame's flags mean; the first means one or the other, by the kind of frame. */
export const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

export const Setting = {
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindow: 4,
  maxFrame: 5,
} as const;

/** Why a stream or a connection ends. */
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

/** Before anything is negotiated. */
export const DEFAULT_WINDOW = 65_535;
export const DEFAULT_MAX_FRAME = 16_384;
export const MAX_WINDOW = 0x7fffffff;

/** The other side broke the rules, after which nothing it says on this connection can be understood. */
export class ProtocolFault extends Error {
  override readonly name = 'ProtocolFault';

  constructor(
    message: string,
    readonly code: ErrorCode = ErrorCode.protocol,
  ) {
    super(message);
  }
}
