import { connect } from 'node:net';

const READ_BYTES = 64 * 1024;

export interface HttpQuestion {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Asks on so many connections at a time, on each for the next thing once the last is answered, while there is one;
 * resolves to the number of answers. It does next to nothing beside, since it shares processors with whom it asks.
 */
export async function askOverHttp(
  url: string,
  connections: number,
  next: () => HttpQuestion | undefined,
): Promise<number> {
  const asking = Array.from({ length: connections }, () => askOnOne(new URL(url), next));
  return (await Promise.all(asking)).reduce((sum, count) => sum + count, 0);
}

function askOnOne(
  { hostname, port, host }: URL,
  next: () => HttpQuestion | undefined,
): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const answers = new AnswerReader();
  const ask = () => {
    const question = next();
    if (question) socket.write(textOf(question, host), 'latin1');
    else socket.end(() => resolve(answers.count));
  };
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  const callback = (count: number) => {
    if (answers.endWith(buffer.subarray(0, count))) ask();
    return true;
  };
  const target = { host: hostname, port: Number(port), noDelay: true };
  const socket = connect({ ...target, onread: { buffer, callback } }, ask);
  socket.on('error', reject).on('close', () => reject(new Error('the server hung up')));
  return promise;
}

function textOf({ path, headers = {} }: HttpQuestion, host: string): string {
  let text = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n`;
  for (const name in headers) text += `${name}: ${headers[name]}\r\n`;
  return `${text}\r\n`;
}

/** Follows the answers on a connection; each has to be a success and to say how long it is. */
class AnswerReader {
  count = 0;
  private head = '';
  private left = 0;

  /** Takes what came; whether an answer ends with it. */
  endWith(piece: Buffer): boolean {
    if (this.left > 0) this.left -= piece.length;
    else this.readHead(piece);
    if (this.left > 0 || this.head !== '') return false;
    this.count += 1;
    return true;
  }

  private readHead(piece: Buffer): void {
    this.head += piece.toString('latin1');
    const end = this.head.indexOf('\r\n\r\n');
    if (end < 0) return;
    const [, length] = /^HTTP\/1\.1 2.*?\r\ncontent-length: (\d+)\r/is.exec(this.head) ?? [];
    if (length === undefined) throw new Error(`not a success: ${this.head.slice(0, 300)}`);
    this.left = Number(length) - (this.head.length - end - 4);
    this.head = '';
  }
}
