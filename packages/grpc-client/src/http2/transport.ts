/** The address of an HTTP/2 server. */
export interface PeerAddress {
  readonly scheme: 'http' | 'https';
  /** Only host and port are used. */
  readonly url: URL;
  /** Trusted certificates, in PEM; default: those that ship with Node. */
  readonly ca?: readonly string[] | undefined;
}

/** Header fields by lower-case name; repeated fields are joined by commas. */
export type HeaderFields = ReadonlyMap<string, string>;

/** Alternating names and values. `fixed` is the same array in every request to a method, so its encoding is cached. */
export interface RequestHeaders {
  readonly fixed: readonly string[];
  readonly variable: readonly string[];
}

/** Opens a connection; the session reports to the listener and never throws. */
export type OpenSession = (peer: PeerAddress, listener: SessionListener) => Session;

/** The client's side of an HTTP/2 connection: many requests at a time on one socket. */
export interface Session {
  /** Whether a new request can start. */
  readonly isOpen: boolean;
  request(headers: RequestHeaders, listener: StreamListener): Stream;
  ping(onAck: () => void): void;
  destroy(cause?: Error): void;
}

export interface SessionListener {
  /** The peer speaks HTTP/2: requests can start. */
  onReady(): void;
  /** No new request can start here; running ones continue. */
  onRetired(): void;
  onClosed(cause: Error | undefined): void;
}

/** The sending side of one request. */
export interface Stream {
  write(bytes: Buffer): void;
  /** Writes the last bytes of the body. */
  end(bytes: Buffer): void;
  /** Resets the stream; its listener receives no further event. */
  cancel(): void;
}

/** Receives the events of one stream. */
export interface StreamListener {
  /** Headers first, trailers last. */
  onHeaders(fields: HeaderFields): void;
  /** The bytes are valid only during the call. */
  onData(bytes: Buffer): void;
  /** The response is complete. */
  onEnd(): void;
  /** The peer reset the stream, or its connection closed. */
  onError(error: StreamError): void;
}

/** Why a stream ended early: the code of a reset, or the cause of a closed connection. */
export interface StreamError {
  readonly code?: number | undefined;
  readonly cause?: Error | undefined;
}
