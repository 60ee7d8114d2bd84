import { JsonSink } from './json-sink.js';
import type { ValueWriter } from './value-writer.js';
import { WireFault } from './wire-fault.js';
import { WIRE_TYPE, WireReader } from './wire-reader.js';

/** Prints the message that fills the reader. */
export type PrintBody = (wire: WireReader, out: JsonSink) => void;

/** Prints a message that is the value of a field. */
export class EmbeddedWriter implements ValueWriter {
  readonly wireType = WIRE_TYPE.lengthDelimited;
  readonly writeBody: PrintBody;
  #zero: Uint8Array | 'being made' | undefined;

  constructor(writeBody: PrintBody) {
    this.writeBody = writeBody;
  }

  write(wire: WireReader, out: JsonSink): void {
    const outer = wire.enter();
    this.writeBody(wire, out);
    wire.leave(outer);
  }

  zero(): Uint8Array {
    if (this.#zero === 'being made')
      throw new WireFault('The descriptors have a message that always holds itself');
    if (this.#zero) return this.#zero;
    this.#zero = 'being made';
    const out = new JsonSink();
    this.writeBody(new WireReader(), out);
    this.#zero = out.take();
    return this.#zero;
  }
}
