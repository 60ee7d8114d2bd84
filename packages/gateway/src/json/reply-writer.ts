import type { DescMessage } from '@bufbuild/protobuf';
import { JsonSink } from './json-sink.js';
import type { JsonWriters } from './json-writers.js';
import type { MessageWriter } from './message-writer.js';
import { WireReader } from './wire-reader.js';

/** What every reply is read and printed with; printing never waits, so one of each is enough. */
const wire = new WireReader();
const sink = new JsonSink();

/** Prints the replies of one method. */
export class ReplyWriter {
  readonly #writers: JsonWriters;
  readonly #type: DescMessage;
  #message: MessageWriter | undefined;

  constructor(writers: JsonWriters, type: DescMessage) {
    this.#writers = writers;
    this.#type = type;
  }

  write(reply: Uint8Array): Buffer {
    wire.reset(reply);
    sink.at = 0;
    this.#writer().writeBody(wire, sink);
    return sink.take();
  }

  slices(reply: Uint8Array): Generator<Buffer> {
    return this.#writer().slices(new WireReader(reply), new JsonSink());
  }

  /** Made on first use, which keeps the start short. */
  #writer(): MessageWriter {
    this.#message ??= this.#writers.message(this.#type);
    return this.#message;
  }
}
