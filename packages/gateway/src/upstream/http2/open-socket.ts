import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectSecure } from 'node:tls';

const READ_BYTES = 64 * 1024;
const TCP_KEEP_ALIVE_MS = 30_000;
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

export interface PeerAddress {
  readonly scheme: 'http' | 'https';
  /** Whose host and port are meant. */
  readonly url: URL;
  /** Certificates to trust, in PEM; unset: those Node brings. */
  readonly ca?: readonly string[] | undefined;
}

/** Connects to a server that is to speak HTTP/2. All that comes is read into the same memory, again and again. */
export function openSocket(
  { scheme, url, ca }: PeerAddress,
  onData: (bytes: Buffer) => void,
): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  const target = {
    host,
    port: url.port === '' ? DEFAULT_PORTS[scheme] : Number(url.port),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
    onread: {
      buffer,
      callback: (count: number) => {
        onData(buffer.subarray(0, count));
        return true;
      },
    },
  };
  if (scheme === 'http') return connectPlain(target);
  const socket = connectSecure({
    ...target,
    ALPNProtocols: ['h2'],
    ...(isIP(host) === 0 && { servername: host }),
    ...(ca && { ca: [...ca] }),
  });
  socket.once('secureConnect', () => {
    if (socket.alpnProtocol !== 'h2') socket.destroy(new Error('it does not speak HTTP/2'));
  });
  return socket;
}
