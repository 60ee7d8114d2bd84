import { EmbeddedWriter, type PrintBody } from './embedded-writer.js';
import { Label } from './label.js';
import { jsonBytes, type ValueWriter } from './value-writer.js';
import { writeText } from './values/text.js';
import { WireFault } from './wire-fault.js';
import { WIRE_TYPE, type WireReader } from './wire-reader.js';

/** How the message inside an Any is printed: its members inline, or its special form as a `value`. */
export interface AnyContent {
  readonly isInline: boolean;
  readonly print: PrintBody;
}

const TYPE_URL_TAG = (1 << 3) | WIRE_TYPE.lengthDelimited;
const VALUE_TAG = (2 << 3) | WIRE_TYPE.lengthDelimited;
const TYPE_LABEL = new Label('@type');
const VALUE_LABEL = new Label('value');
const NULL = jsonBytes('null');

/** Prints an Any by the type it names. */
export function anyWriter(contentOf: (typeName: string) => AnyContent | undefined): ValueWriter {
  const embedded = new EmbeddedWriter((wire, out) => {
    const span = readAny(wire);
    const url = Buffer.from(wire.bytes.subarray(span.urlStart, span.urlEnd)).toString();
    const content = contentOf(url.slice(url.lastIndexOf('/') + 1));
    if (!content)
      throw new WireFault(`The reply holds an Any of unknown type ${JSON.stringify(url)}`);
    const start = out.at;
    out.label(TYPE_LABEL);
    writeText(out, wire.bytes, span.urlStart, span.urlEnd);
    if (!content.isInline) out.label(VALUE_LABEL);
    const outer = wire.narrow(span.valueStart, span.valueEnd);
    content.print(wire, out);
    wire.leave(outer);
    out.closeObject(start);
  });
  return {
    wireType: embedded.wireType,
    write: (wire, out) => embedded.write(wire, out),
    writeBody: embedded.writeBody,
    zero: () => NULL,
  };
}

function readAny(wire: WireReader) {
  const span = { urlStart: 0, urlEnd: 0, valueStart: 0, valueEnd: 0 };
  while (wire.at < wire.end) {
    const tag = wire.tag();
    wire.skip(tag);
    if (tag !== TYPE_URL_TAG && tag !== VALUE_TAG) continue;
    // The length was read last, as part of skipping.
    const start = wire.at - wire.low;
    if (tag === TYPE_URL_TAG) Object.assign(span, { urlStart: start, urlEnd: wire.at });
    else Object.assign(span, { valueStart: start, valueEnd: wire.at });
  }
  return span;
}
