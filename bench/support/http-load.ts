import { connect } from 'node:net';

const READ_BYTES = 64 * 1024;

interface HttpRequest {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Sends requests on this many connections, on each the next one after the last response, until `next` returns none;
 * resolves to the number of responses. It is minimal, since it shares the processor with the server under test.
 */
export async function sendRequests(
  url: string,
  connections: number,
  next: () => HttpRequest | undefined,
): Promise<number> {
  const counts = Array.from({ length: connections }, () => sendOnConnection(new URL(url), next));
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0);
}

function sendOnConnection(
  { hostname, port, host }: URL,
  next: () => HttpRequest | undefined,
): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const responses = new ResponseReader();
  const send = () => {
    const request = next();
    if (request) socket.write(formatRequest(request, host), 'latin1');
    else socket.end(() => resolve(responses.count));
  };
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  const callback = (count: number) => {
    if (responses.read(buffer.subarray(0, count))) send();
    return true;
  };
  const target = { host: hostname, port: Number(port), noDelay: true };
  const socket = connect({ ...target, onread: { buffer, callback } }, send);
  socket.on('error', reject).on('close', () => reject(new Error('The server closed the socket')));
  return promise;
}

function formatRequest({ path, headers = {} }: HttpRequest, host: string): string {
  let text = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n`;
  for (const name in headers) text += `${name}: ${headers[name]}\r\n`;
  return `${text}\r\n`;
}

/** Reads the responses of a connection; each must be a success with a content length. */
class ResponseReader {
  count = 0;
  private head = '';
  private left = 0;

  /** Returns whether a response ends with this chunk. */
  read(chunk: Buffer): boolean {
    if (this.left > 0) this.left -= chunk.length;
    else this.readHead(chunk);
    if (this.left > 0 || this.head !== '') return false;
    this.count += 1;
    return true;
  }

  private readHead(chunk: Buffer): void {
    this.head += chunk.toString('latin1');
    const end = this.head.indexOf('\r\n\r\n');
    if (end < 0) return;
    const [, length] = /^HTTP\/1\.1 2.*?\r\ncontent-length: (\d+)\r/is.exec(this.head) ?? [];
    if (length === undefined) throw new Error(`Not a success: ${this.head.slice(0, 300)}`);
    this.left = Number(length) - (this.head.length - end - 4);
    this.head = '';
  }
}
