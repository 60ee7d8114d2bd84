import type { ReplyPart } from '@sibyl/client';
import type { Output } from '../terminal/output.js';
import { plainText } from '../terminal/plain-text.js';

const SHOWN = 200;

const marks = { isRunning: '⚙', done: '✓', error: '✗' } as const;

/** Writes a reply to the terminal as it comes: text as it is, all else as short lines between. */
export class ReplyPrinter {
  status = '';
  #isInLine = false;

  constructor(private readonly output: Output) {}

  print(part: ReplyPart): void {
    switch (part.event) {
      case 'message':
        this.#text(part.data.content);
        break;
      case 'tool_call':
      case 'action_call':
        this.#call(part.data);
        break;
      case 'router_update':
        this.#line(`→ ${part.data.to ?? ''} ${part.data.step}`);
        break;
      case 'warning':
        this.#line(`! ${part.data.message}`);
        break;
      case 'error':
        this.#line(`✗ ${part.data.error}`);
        break;
      case 'done':
        this.#end(part.data.status);
        break;
    }
  }

  #text(text: string): void {
    this.output.write(plainText(text));
    this.#isInLine = !text.endsWith('\n');
  }

  #call(call: {
    toolName: string;
    status: keyof typeof marks;
    args: object;
    output?: string | undefined;
  }): void {
    const shown = call.status === 'isRunning' ? JSON.stringify(call.args) : (call.output ?? '');
    this.#line(`${marks[call.status]} ${call.toolName} ${shown.slice(0, SHOWN)}`);
  }

  #end(status: string): void {
    this.status = status;
    if (status !== 'finished') this.#line(`(${status})`);
    else if (this.#isInLine) this.output.write('\n');
  }

  #line(text: string): void {
    if (this.#isInLine) this.output.write('\n');
    this.#isInLine = false;
    this.output.write(`${this.output.dim(plainText(text))}\n`);
  }
}
